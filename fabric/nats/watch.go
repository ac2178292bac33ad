package nats

import (
	"errors"
	"time"

	client "github.com/nats-io/nats.go"
)

// noteAlive records that the server at an address is alive now, and starts watching the address. The caller holds l.mu.
func (l *Link) noteAlive(a Address) { l.lastSeen[a] = time.Now() }

// watch pings the other ends of connections that have been silent, until the link is closed.
func (l *Link) watch() {
	every := l.config.PeerTimeout / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.ended:
			return
		case now := <-tick.C:
			ask, quiet := l.silentPeers(now, every)
			for _, a := range ask {
				// If this fails, NATS is down, and all connections are reset anyway.
				_ = l.nats.PublishRequest(l.prefixOf(a)+"ping", l.ownPrefix+"ping."+token(a), l.ownAddress())
			}
			for _, a := range quiet {
				l.resetPeer(a, errPeerSilent)
			}
		}
	}
}

// silentPeers returns the addresses to ping (ask), and the addresses that have been silent for too long (gone). It
// stops watching addresses to which there are no connections.
func (l *Link) silentPeers(now time.Time, every time.Duration) (ask, gone []Address) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := make(map[Address]bool, len(l.lastSeen))
	for _, c := range l.conns {
		used[c.peer] = true
	}
	for a, at := range l.lastSeen {
		switch silence := now.Sub(at); {
		case !used[a]:
			delete(l.lastSeen, a)
		case silence >= l.config.PeerTimeout:
			gone = append(gone, a)
		case silence >= every:
			ask = append(ask, a)
		}
	}
	return ask, gone
}

// resetPeer resets all connections to an address.
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

// ownAddress returns this server's address, which is the body of pings and of the answers to them.
func (l *Link) ownAddress() []byte {
	a := l.own.As16()
	return a[:]
}

// takePing handles one of these messages: another server's ping, the answer to this server's own ping, or NATS's
// notification that nobody received that ping. The parameter of is the token for the address to which this server's
// pings were sent.
func (l *Link) takePing(of string, m *client.Msg) {
	if isNoResponders(m) {
		for _, a := range l.peersOf(of) {
			l.resetPeer(a, errPeerGone)
		}
		return
	}
	from, err := addressIn(m.Data)
	if err != nil {
		l.Malformed.Add(1)
		return
	}
	l.mu.Lock()
	if _, watched := l.lastSeen[from]; watched {
		l.noteAlive(from)
	}
	l.mu.Unlock()
	if m.Reply != "" {
		_ = l.nats.Publish(m.Reply, l.ownAddress()) // if this fails, the other end repeats its ping
	}
}

// peersOf returns the watched addresses whose token is of.
func (l *Link) peersOf(of string) []Address {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Address
	for a := range l.lastSeen {
		if token(a) == of {
			out = append(out, a)
		}
	}
	return out
}

var errNoAddress = errors.New("not an address of this network")
