package nats

import (
	"errors"
	"time"

	client "github.com/nats-io/nats.go"
)

// sawPeer records a sign of life from an address, which is watched from then on. The caller
// holds l.mu.
func (l *Link) sawPeer(a Address) { l.seen[a] = time.Now() }

// watch pings the other ends of connections that have been silent, until the link is closed.
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
				_ = l.nats.PublishRequest(l.at(a)+"ping", l.home+"ping."+token(a), l.pong()) // an error means that NATS is down, which resets all connections anyway
			}
			for _, a := range quiet {
				l.resetPeer(a, errQuiet)
			}
		}
	}
}

// silent returns the addresses that have to be pinged, and those that have been
// silent for too long.
func (l *Link) silent(now time.Time, every time.Duration) (ask, gone []Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := make(map[Address]bool, len(l.seen))
	for _, c := range l.conns {
		used[c.peer] = true
	}
	for a, at := range l.seen {
		switch silence := now.Sub(at); {
		case !used[a]:
			delete(l.seen, a)
		case silence >= l.config.Patience:
			gone = append(gone, a)
		case silence >= every:
			ask = append(ask, a)
		}
	}
	return ask, gone
}

// resetPeer resets all connections with an address.
func (l *Link) resetPeer(a Address, why error) {
	l.mu.Lock()
	var all []*Conn
	for _, c := range l.conns {
		if c.peer == a {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		c.reset(why)
	}
}

// pong returns this server's address, which is the content of pings and their answers.
func (l *Link) pong() []byte {
	a := l.own.As16()
	return a[:]
}

// takePing answers a ping, and handles both the answer to our own ping and NATS's
// notification that nobody received the ping.
func (l *Link) takePing(of string, m *client.Msg) {
	if noResponder(m) {
		for _, a := range l.known(of) {
			l.resetPeer(a, errGone)
		}
		return
	}
	from, err := addressIn(m.Data)
	if err != nil {
		l.Malformed.Add(1)
		return
	}
	l.mu.Lock()
	if _, watched := l.seen[from]; watched {
		l.sawPeer(from)
	}
	l.mu.Unlock()
	if m.Reply != "" {
		_ = l.nats.Publish(m.Reply, l.pong()) // if this fails, the other end repeats its ping
	}
}

// known returns the watched addresses that have the given token.
func (l *Link) known(of string) []Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Address
	for a := range l.seen {
		if token(a) == of {
			out = append(out, a)
		}
	}
	return out
}

var errNoAddress = errors.New("not an address of this network")
