/* How masters lead: at most one acts as leader at a time, and what a leader changes, it changes in
 * its own term and place, or not at all.
 *
 * Three masters. leader_tables.py makes leaders.inc by asking the product's own functions: where a
 * master stands in the queue, how long a lease lasts, and what the fence and the raise of the epoch
 * check.
 * Time is counted in three steps of a session: ZooKeeper may end one at step 3, counted from the last
 * write that it executed; a master counts its lease from the sending of the last one that was answered.
 * FAULTS of these may happen: a session ends, a master dies, an answer is lost. A request whose answer
 * was lost may be executed at any later time of its session.
 * Left out: hand-over to a successor, readiness, and users of ZooKeeper with identities. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef EPOCHS
#define EPOCHS 4
#endif
#define MASTERS 3
#define NOBODY 3

/* A request. */
#define NOTHING 0
#define QUEUE 1
#define RAISE 2
#define RENEW 3
#define CHANGE 4
#define RESIGN 5
/* It was executed, and the answer is under way. */
#define RENEWED 6
#define RESIGNED 7

#include "leaders.inc"

/* What ZooKeeper has. */
byte epoch = 0;
byte leader = NOBODY;          /* who raised this epoch, and has not left it */
byte queue[MASTERS] = NOBODY;  /* the owners of the places, in order */
byte number[MASTERS];          /* tells the places of one master apart */
bit alive[MASTERS] = 1;
byte age[MASTERS];             /* of the last write that it executed */

/* What each master believes. */
bit in_session[MASTERS] = 1;
bit has_place[MASTERS];
byte term[MASTERS];            /* the epoch that it raised; 0: none */
byte lease[MASTERS] = 3;
byte busy[MASTERS];
byte sent[MASTERS];            /* the age of the request under way */
byte meant[MASTERS];           /* the epoch that the request was made for, and the place */
byte meant_place[MASTERS];
byte late[MASTERS];            /* a request whose answer was lost */
byte late_meant[MASTERS];
byte late_place[MASTERS];

byte faults = FAULTS;
byte named = 0;

#define PLACE(i) (queue[0] == i -> 0 : (queue[1] == i -> 1 : (queue[2] == i -> 2 : 3)))
#define PLACED(i) (PLACE(i) < 3)
#define STANDS(i) stands[PLACE(i) * 2 + 1]
#ifdef LONG_LEASE
#define ACTS(i) (term[i] != 0 && in_session[i])
#else
#define ACTS(i) (term[i] != 0 && in_session[i] && acts[lease[i]])
#endif
#define ALONE(i) (!ACTS((i + 1) % 3) && !ACTS((i + 2) % 3))
#define CONCERNED(i) (term[i] != 0 || PLACED(i) || busy[i] != NOTHING)

inline done(i) { busy[i] = NOTHING; sent[i] = 0; meant[i] = 0; meant_place[i] = 0 }
inline no_term(i) { term[i] = 0; lease[i] = 3 }

inline leave(i) {
    if
    :: queue[0] == i -> queue[0] = queue[1]; queue[1] = queue[2]; queue[2] = NOBODY
    :: queue[1] == i -> queue[1] = queue[2]; queue[2] = NOBODY
    :: queue[2] == i -> queue[2] = NOBODY
    :: else
    fi
}

inline enter(i) {
    if
    :: PLACED(i)
    :: else ->
        number[i] = (number[i] + 1) % 4;
        if
        :: queue[0] == NOBODY -> queue[0] = i
        :: queue[0] != NOBODY && queue[1] == NOBODY -> queue[1] = i
        :: else -> queue[2] = i
        fi
    fi;
    age[i] = 0
}

/* The answer to a write that ZooKeeper executed. */
inline heard(i) {
#ifdef LEASE_FROM_ANSWER
    lease[i] = 0
#else
    lease[i] = (sent[i] < lease[i] -> sent[i] : lease[i])
#endif
}

#ifdef UNFENCED
#define FENCE_HOLDS(i, at, place) true
#else
#define FENCE_HOLDS(i, at, place) ((!FENCE_EPOCH || epoch == at) && (!FENCE_PLACE || (PLACED(i) && number[i] == place)))
#endif
#define RAISE_HOLDS(i, at, place) ((!RAISE_EPOCH || epoch == at) && (!RAISE_PLACE || (PLACED(i) && number[i] == place)))
/* What must hold when a change is made: nobody else has led since, and the place is still there. */
#define IN_TERM(i, at, place) (leader == i && epoch == at && PLACED(i) && number[i] == place)

inline take_office(i) { epoch++; leader = i; age[i] = 0 }

inline execute(i) {
    if
    :: !alive[i] -> in_session[i] = 0; has_place[i] = 0; no_term(i)  /* refused */
    :: alive[i] && busy[i] == QUEUE -> enter(i); has_place[i] = 1
    :: alive[i] && busy[i] == RAISE ->
        if
        :: RAISE_HOLDS(i, meant[i], meant_place[i]) ->
            take_office(i); term[i] = epoch; heard(i); assert(!ACTS(i) || ALONE(i))
        :: else -> has_place[i] = PLACED(i)
        fi
    :: alive[i] && busy[i] == RENEW ->
        if
        :: PLACED(i) && number[i] == meant_place[i] -> age[i] = 0; busy[i] = RENEWED
        :: else -> has_place[i] = 0; no_term(i)
        fi
    :: alive[i] && busy[i] == CHANGE ->
        if
        :: FENCE_HOLDS(i, meant[i], meant_place[i]) ->
            assert(IN_TERM(i, meant[i], meant_place[i])); age[i] = 0;
            if
            :: term[i] != 0 -> heard(i); assert(!ACTS(i) || ALONE(i))
            :: else
            fi
        :: else -> no_term(i)
        fi
    :: alive[i] && busy[i] == RESIGN ->
        if
        :: epoch == meant[i] && PLACED(i) -> epoch++; leader = NOBODY; leave(i)
        :: else -> leave(i)
        fi;
        busy[i] = RESIGNED
    fi;
    if
    :: busy[i] < RENEWED -> done(i)
    :: else
    fi
}

inline hear(i) {
    if
    :: busy[i] == RENEWED && term[i] != 0 -> heard(i); assert(!ACTS(i) || ALONE(i))
    :: busy[i] == RESIGNED -> has_place[i] = 0; no_term(i)
    :: else
    fi;
    done(i)
}

inline lose_answer(i) {
    if
    :: alive[i] && busy[i] == QUEUE -> enter(i)
    :: alive[i] && busy[i] == RAISE && RAISE_HOLDS(i, meant[i], meant_place[i]) -> take_office(i)
    :: alive[i] && (busy[i] == RAISE || busy[i] == CHANGE) && late[i] == NOTHING ->
        late[i] = busy[i]; late_meant[i] = meant[i]; late_place[i] = meant_place[i]
    :: alive[i] && busy[i] == RENEW && PLACED(i) -> age[i] = 0
    :: alive[i] && busy[i] == RESIGN && epoch == meant[i] -> epoch++; leader = NOBODY; leave(i)
    :: true
    fi;
    if
    :: busy[i] == QUEUE || busy[i] == RAISE || busy[i] == RESIGN || busy[i] == RESIGNED -> has_place[i] = 0; no_term(i)
    :: else
    fi;
    done(i)
}

inline execute_late(i) {
    if
    :: late[i] == CHANGE && FENCE_HOLDS(i, late_meant[i], late_place[i]) -> assert(IN_TERM(i, late_meant[i], late_place[i]))
    :: late[i] == RAISE && RAISE_HOLDS(i, late_meant[i], late_place[i]) && epoch < EPOCHS -> take_office(i)
    :: else
    fi;
    late[i] = NOTHING; late_meant[i] = 0; late_place[i] = 0
}

proctype Master(byte i) {
    do
    /* Masters are alike, so they may queue for the first time in the order of their numbers. */
    :: atomic { busy[i] == NOTHING && in_session[i] && !has_place[i] && i <= named ->
        busy[i] = QUEUE; named = (i == named -> i + 1 : named) }
    :: atomic { busy[i] == NOTHING && in_session[i] && has_place[i] && term[i] == 0 && STANDS(i) == FIRST && epoch < EPOCHS ->
        busy[i] = RAISE; meant[i] = epoch; meant_place[i] = number[i] }
    :: atomic { busy[i] == NOTHING && ACTS(i) ->
        busy[i] = CHANGE; meant[i] = term[i]; meant_place[i] = number[i] }
    :: atomic { busy[i] == NOTHING && ACTS(i) && lease[i] > 0 -> busy[i] = RENEW; meant_place[i] = number[i] }
    /* It gives way: it stops to act, and then leaves its place. */
    :: atomic { busy[i] == NOTHING && ACTS(i) && epoch < EPOCHS ->
        busy[i] = RESIGN; meant[i] = term[i];
#ifndef RESIGNS_FIRST
        no_term(i)
#endif
        }
    /* Its lease is over: it queues again, and finds its place. */
    :: atomic { busy[i] == NOTHING && term[i] != 0 && in_session[i] && !ACTS(i) -> no_term(i); has_place[i] = 0 }
    :: atomic { busy[i] != NOTHING && busy[i] < RENEWED -> execute(i) }
    :: atomic { busy[i] >= RENEWED -> hear(i) }
    :: atomic { busy[i] != NOTHING && faults > 0 -> faults--; lose_answer(i) }
    :: atomic { late[i] != NOTHING -> execute_late(i) }
    :: atomic { CONCERNED(i) && (lease[i] < 3 || age[i] < 3 || (busy[i] != NOTHING && sent[i] < 3)) ->
        if :: term[i] != 0 && lease[i] < 3 -> lease[i]++ :: else fi;
        if :: busy[i] != NOTHING && sent[i] < 3 -> sent[i]++ :: else fi;
        if :: age[i] < 3 -> age[i]++ :: else fi }
    :: atomic { alive[i] && age[i] == 3 && PLACED(i) && faults > 0 ->
        faults--; alive[i] = 0; leave(i); late[i] = NOTHING; late_meant[i] = 0; late_place[i] = 0 }
    :: atomic { !alive[i] && in_session[i] -> in_session[i] = 0; has_place[i] = 0; no_term(i); done(i) }
    :: atomic { !alive[i] && !in_session[i] -> alive[i] = 1; in_session[i] = 1; age[i] = 0 }
    /* It dies. The next process deletes its place and queues anew; what was sent may still be executed. */
    :: atomic { faults > 0 && has_place[i] && alive[i] ->
        faults--; lose_answer(i); leave(i); has_place[i] = 0; no_term(i) }
    od
}

init { atomic { run Master(0); run Master(1); run Master(2) } }
