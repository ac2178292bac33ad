package nats

import (
	"errors"
	"time"

	client "github.com/nats-io/nats.go"
)

// peer is a server at the other ends of connections or calls.
type peer struct {
	heard time.Time // when it sent the last sign of life
	calls string    // subject at which it takes calls
}

// hear notes a sign of life of an address. l.mu is held.
func (l *Link) hear(a Address) { l.meet(a).heard = time.Now() }

// meet returns the peer at an address, which is watched from now on. l.mu is
// held.
func (l *Link) meet(a Address) *peer {
	p := l.peers[a]
	if p == nil {
		p = &peer{heard: time.Now(), calls: l.calls(a)}
		l.peers[a] = p
	}
	return p
}

// watch watches the other ends of connections and calls until the
// link is closed: one that was silent for a while is asked for a sign of life.
func (l *Link) watch() {
	every := l.config.Patience / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.ended:
			return
		case now := <-tick.C:
			ask, quiet := l.silent(now, every)
			for _, a := range ask {
				_ = l.nats.PublishRequest(l.at(a)+"ping", l.home+"ping."+token(a), l.pong()) // down: then all is reset anyway
			}
			for _, a := range quiet {
				l.lost(a, errQuiet)
			}
			l.callRolls()
		}
	}
}

// silent returns those with connections or calls that have not been heard for a while,
// and those that have been silent for too long.
func (l *Link) silent(now time.Time, every time.Duration) (ask, gone []Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := make(map[Address]bool, len(l.peers))
	for _, c := range l.conns {
		used[c.peer] = true
	}
	for _, c := range l.mine {
		used[c.to] = true
	}
	for id := range l.theirs {
		used[id.from] = true
	}
	for a, p := range l.peers {
		switch silence := now.Sub(p.heard); {
		case !used[a]:
			delete(l.peers, a)
		case silence >= l.config.Patience:
			gone = append(gone, a)
		case silence >= every:
			ask = append(ask, a)
		}
	}
	return ask, gone
}

// lost breaks off all connections and calls with an address.
func (l *Link) lost(a Address, why error) {
	l.mu.Lock()
	var all []*Conn
	for _, c := range l.conns {
		if c.peer == a {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		c.breakOff(why)
	}
	l.endCallsWith(a, why)
}

// pong returns our address.
func (l *Link) pong() []byte {
	a := l.own.As16()
	return a[:]
}

// takePing answers a request for a sign of life, and handles the answer to our
// own, or that no one is there.
func (l *Link) takePing(of string, m *client.Msg) {
	if nobody(m) {
		for _, a := range l.known(of) {
			l.lost(a, errGone)
		}
		return
	}
	from, err := addressIn(m.Data)
	if err != nil {
		l.Strange.Add(1)
		return
	}
	l.mu.Lock()
	if l.peers[from] != nil {
		l.hear(from)
	}
	l.mu.Unlock()
	if m.Reply != "" {
		_ = l.nats.Publish(m.Reply, l.pong()) // it asks again
	}
}

// known returns the watched addresses that are written so.
func (l *Link) known(of string) []Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Address
	for a := range l.peers {
		if token(a) == of {
			out = append(out, a)
		}
	}
	return out
}

var errNoAddress = errors.New("not an address of this network")
