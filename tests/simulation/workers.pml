/* Never two: three hosts, one worker. Each host's plan and its view of a barrier are tables.inc,
 * which protocol_tables.py makes by asking the product's own functions for every combination.
 *
 * Time is counted in three steps of a lease: it is good (0), workers have to stop (1), they have to
 * be gone (2). ZooKeeper may end a session at step 3, counted from the last write that it executed;
 * a host counts from the sending of the last one that was answered.
 * The leader assigns the worker to whom it likes, also to several hosts, MOVES times.
 * FAULTS of these may happen: a session ends, a supervisor dies, an answer is lost.
 * Left out: proofs of isolation, the pause of a whole host, users of ZooKeeper with identities. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef MOVES
#define MOVES 3
#endif
#define HOSTS 3
#define NOBODY 3

/* A run. */
#define NONE 0
#define STARTING 1
#define LIVE 2

#include "tables.inc"

/* What ZooKeeper has. */
byte owner = NOBODY;
bit alive[HOSTS] = 1;
byte age[HOSTS];               /* of the last write that it executed */

/* What each host believes. */
bit assigned[HOSTS];
bit wanted[HOSTS];
bit owned[HOSTS];
bit unclear[HOSTS];
bit in_session[HOSTS] = 1;
bit current[HOSTS];            /* whether its run belongs to the session of its barriers */
byte lease[HOSTS];
byte sent[HOSTS];              /* the age of the request under way */
byte busy[HOSTS] = NOTHING;
byte todo[HOSTS] = NOTHING;   /* decided, and not carried out */
byte work[HOSTS] = NONE;
byte told[HOSTS] = NOTHING;   /* how the run was told to end */

byte faults = FAULTS;
byte moves = MOVES;
byte named = 0;

#define IN_USE(i) (work[i] != NONE)
/* The rows of the tables, in the order in which protocol_tables.py writes them. */
#define MOVING(i) (busy[i] == TAKE -> 1 : (busy[i] == RELEASE -> 2 : 0))
#define BARRIER(i) looks[(((owned[i] * 2 + unclear[i]) * 2 + wanted[i]) * 2 + IN_USE(i)) * 3 + MOVING(i)]
#define TOLD(i) (told[i] == STOP -> 1 : (told[i] == KILL -> 2 : 0))
#define RUN(i) (work[i] == NONE -> 0 : 1 + (TOLD(i) * 2 + current[i]) * 2 + in_session[i])
#define CONCERNED(i) (owner == i || owned[i] || unclear[i] || work[i] != NONE)
#ifdef LONG_LEASE
#define MAY_PASS(i) true
#else
#define MAY_PASS(i) !(work[i] == LIVE && lease[i] >= 2)
#endif
#define PLAN(i) plans[((assigned[i] * 4 + BARRIER(i)) * 4 + lease[i]) * 13 + RUN(i)]

/* What is not used has one value, so that fewer states differ. */
inline done(i) { busy[i] = NOTHING; sent[i] = 0 }
inline ended(i) { work[i] = NONE; told[i] = NOTHING; current[i] = 0 }

inline forget(i) {
    owned[i] = 0; unclear[i] = 0; done(i); in_session[i] = 0; current[i] = 0; lease[i] = 3
}

/* The answer to a write that ZooKeeper executed. */
inline heard(i) {
    lease[i] = (sent[i] < lease[i] -> sent[i] : lease[i]);
}

inline execute(i) {
    if
    :: !alive[i] -> forget(i)
    :: alive[i] && busy[i] == TAKE && owner == NOBODY -> owner = i; owned[i] = 1; age[i] = 0; heard(i)
    :: alive[i] && busy[i] == TAKE && owner == i -> unclear[i] = 1
    :: alive[i] && busy[i] == TAKE && owner != NOBODY && owner != i -> skip
    :: alive[i] && busy[i] == RELEASE ->
        if
        :: owner == i -> assert(work[i] != LIVE); owner = NOBODY
        :: else
        fi;
        owned[i] = 0; age[i] = 0; heard(i)
    :: alive[i] && busy[i] == RENEW -> age[i] = 0; heard(i)
    fi;
    done(i)
}

inline lose_answer(i) {
    /* Whether it was executed is not known. */
    if
    :: alive[i] && busy[i] == TAKE && owner == NOBODY -> owner = i; age[i] = 0
    :: alive[i] && busy[i] == RELEASE && owner == i -> assert(work[i] != LIVE); owner = NOBODY; age[i] = 0
    :: true
    fi;
    if
    :: busy[i] == TAKE || busy[i] == RELEASE -> owned[i] = 0; unclear[i] = 1
    :: else
    fi;
    done(i)
}

inline carry_out(i) {
    if
    :: todo[i] == TAKE -> wanted[i] = 1
    :: todo[i] == RELEASE -> wanted[i] = 0
#ifdef STALE_START
    :: todo[i] == START -> work[i] = STARTING; told[i] = NOTHING; current[i] = in_session[i]
#else
    :: todo[i] == START && in_session[i] && BARRIER(i) == HELD -> work[i] = STARTING; told[i] = NOTHING; current[i] = 1
#endif
    :: todo[i] == CARRY -> current[i] = in_session[i]
    :: (todo[i] == STOP || todo[i] == KILL) && work[i] != NONE -> told[i] = todo[i]
    :: else
    fi;
#ifdef RELEASED_EARLY
    if
    :: todo[i] == STOP || todo[i] == KILL -> wanted[i] = 0
    :: else
    fi;
#endif
    todo[i] = NOTHING
}

proctype Host(byte i) {
    do
    /* Hosts are alike, so they may get the worker for the first time in the order of their numbers. */
    :: atomic { moves > 0 && i <= named -> moves--; assigned[i] = !assigned[i]; named = (i == named -> i + 1 : named) }
    :: atomic { todo[i] == NOTHING -> 
        todo[i] = PLAN(i);
        if
        :: todo[i] == START  /* It is carried out later, perhaps when more has happened. */
        :: else -> carry_out(i)
        fi }
    :: atomic { todo[i] == START -> carry_out(i) }

    /* The loop of the barriers: one request at a time. */
    :: atomic { busy[i] == NOTHING && in_session[i] && unclear[i] ->
        if
        :: alive[i] -> owned[i] = (owner == i); unclear[i] = 0
        :: else -> forget(i)
        fi }
#ifdef RELEASED_EARLY
    :: atomic { busy[i] == NOTHING && in_session[i] && owned[i] && !wanted[i] -> busy[i] = RELEASE; sent[i] = 0 }
#else
    :: atomic { busy[i] == NOTHING && in_session[i] && owned[i] && !wanted[i] && !IN_USE(i) ->
        busy[i] = RELEASE; sent[i] = 0 }
#endif
    :: atomic { busy[i] == NOTHING && in_session[i] && wanted[i] && !owned[i] && !unclear[i] && lease[i] < 1 ->
        busy[i] = TAKE; sent[i] = 0 }
    :: atomic { busy[i] == NOTHING && in_session[i] && lease[i] > 0 -> busy[i] = RENEW; sent[i] = 0 }
    :: atomic { busy[i] != NOTHING -> execute(i) }
    :: atomic { busy[i] != NOTHING && faults > 0 -> faults--; lose_answer(i) }

    /* The run and its guardian. */
    :: atomic { work[i] == STARTING ->
        if
        :: current[i] && in_session[i] && told[i] == NOTHING && lease[i] < 2 -> work[i] = LIVE
        :: else -> ended(i)
        fi;
        assert(work[i] != LIVE || owner == i) }
    :: atomic { work[i] == LIVE -> ended(i) }
    /* The rest is time, which matters to hosts that have a barrier or a run. What must be gone at a
     * step is gone before the next one. */
    :: atomic { CONCERNED(i) && (lease[i] < 3 || age[i] < 3) && MAY_PASS(i) ->
        if :: lease[i] < 3 -> lease[i]++ :: else fi;
        if :: busy[i] != NOTHING && sent[i] < 3 -> sent[i]++ :: else fi;
        if :: age[i] < 3 -> age[i]++ :: else fi }
    :: atomic { alive[i] && age[i] == 3 && faults > 0 ->
        faults--; alive[i] = 0;
        if
        :: owner == i -> owner = NOBODY; assert(work[i] != LIVE)
        :: else
        fi }
    :: atomic { !alive[i] && in_session[i] -> forget(i) }
    :: atomic { !alive[i] && !in_session[i] && work[i] != LIVE -> alive[i] = 1; in_session[i] = 1; age[i] = 0; lease[i] = 3 }
    /* The supervisor dies, and the next one resumes its session. */
    :: atomic { faults > 0 -> faults--;
        lose_answer(i); todo[i] = NOTHING; unclear[i] = in_session[i]; owned[i] = 0; wanted[i] = 1;
        if
        :: work[i] == STARTING && current[i] && in_session[i] && told[i] == NOTHING && lease[i] < 2 ->
            work[i] = LIVE; assert(owner == i)
        :: work[i] == STARTING -> ended(i)
        :: else
        fi }
    od
}

init { atomic { run Host(0); run Host(1); run Host(2) } }
