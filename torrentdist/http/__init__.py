"""HTTP/1.1 requests to masters and supervisors: the connections, the limits on answers, and what
answers mean.
"""
