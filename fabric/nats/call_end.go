package nats

import "context"

// callTables are the calls in progress.
type callTables struct {
	mine     map[uint64]*call // by their numbers
	lastCall uint64           // number of the newest of them
	theirs   map[callID]*served
	desk     *desk // serves them; nil: this server takes no calls
}

// endCalls ends all calls: the answers to ours are lost, the handlers of
// others' are canceled.
func (l *Link) endCalls(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.mine {
		l.finish(c, why)
	}
	for _, c := range l.theirs {
		c.cut(why)
	}
}

// endCallsWith ends all calls to and from an address that is lost.
func (l *Link) endCallsWith(a Address, why error) {
	var left []*call
	l.mu.Lock()
	for _, c := range l.mine {
		if c.to == a && l.finish(c, why) {
			left = append(left, c)
		}
	}
	for id, c := range l.theirs {
		if id.from == a {
			c.leave()
		}
	}
	l.mu.Unlock()
	for _, c := range left {
		l.leave(c) // it may live
	}
}

// leave cancels the handler of a call that is no longer waited for.
func (c *served) leave() {
	c.left.Store(true)
	c.cut(context.Canceled)
}

// callRolls sends the others the calls with them that have been in progress for a
// while. Those that they do not know were lost on the way, in one direction or the other.
func (l *Link) callRolls() {
	l.mu.Lock()
	calls, serves := map[Address]*roll{}, map[Address]*roll{}
	add := func(to map[Address]*roll, a Address, n uint64) {
		r := to[a]
		if r == nil {
			r = &roll{from: l.own}
			to[a] = r
		}
		if len(r.numbers) < mostInRoll {
			r.numbers = append(r.numbers, n)
		}
	}
	for n, c := range l.mine {
		if c.seen && c.sent.Load() {
			add(calls, c.to, n)
		}
		c.seen = true
	}
	for id, c := range l.theirs {
		if c.seen {
			add(serves, id.from, id.number)
		}
		c.seen = true
	}
	l.mu.Unlock()
	for a, r := range calls {
		_ = l.nats.Publish(l.calls(a), r.bytes()) // the next round sends it again
	}
	for a, r := range serves {
		_ = l.nats.Publish(l.at(a)+"roll", r.bytes())
	}
}

// takeRollOfServer handles the calls that a worker serves for us, and notifies it
// of those that we do not wait for.
func (l *Link) takeRollOfServer(b []byte) {
	r, ok := l.readRoll(b)
	if !ok {
		return
	}
	var gone []uint64
	l.mu.Lock()
	for _, n := range r.numbers {
		if c := l.mine[n]; c == nil || c.to != r.from {
			gone = append(gone, n)
		}
	}
	l.mu.Unlock()
	for _, n := range gone {
		_ = l.nats.Publish(l.calls(r.from), leaving(callID{l.own, n}))
	}
}

// takeRollOfCaller handles the calls that a caller waits for, and breaks those that
// we do not know. It comes by the subject of requests, after them; and a call
// leaves the table after its answer has been sent.
func (l *Link) takeRollOfCaller(b []byte) {
	r, ok := l.readRoll(b)
	if !ok {
		return
	}
	var gone []callID
	l.mu.Lock()
	for _, n := range r.numbers {
		if id := (callID{r.from, n}); l.theirs[id] == nil {
			gone = append(gone, id)
		}
	}
	l.mu.Unlock()
	for _, id := range gone {
		l.breakCall(l.answers(id))
	}
}

func (l *Link) readRoll(b []byte) (roll, bool) {
	if len(b) == 0 || callKind(b[0]) != callRoll {
		l.Strange.Add(1)
		return roll{}, false
	}
	r, err := parseRoll(b[1:])
	if err != nil {
		l.Strange.Add(1)
	}
	return r, err == nil
}
