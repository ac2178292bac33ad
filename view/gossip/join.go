package gossip

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Between calls to members that do not answer: at first often, then patiently.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// goneFor is how long a member that went is called, in case it was we who were
// cut off; goneCalls is how many of them each time.
const (
	goneFor   = time.Hour
	goneCalls = 3
)

// join calls the members that are to be joined until one has answered, and
// from then on those that are missing. It closes joined after the first round.
func (m *Members) join(ctx context.Context, joined chan<- struct{}) {
	backoff := minBackoff
	met := len(m.toJoin(m.config.Join)) == 0 && m.config.Find == nil // nobody to wait for
	for first := true; ctx.Err() == nil; first = false {
		for _, address := range m.toCall(time.Now(), m.config.found(ctx)) {
			met = m.call(ctx, address) || met
		}
		if first {
			close(joined)
		}
		wait := m.config.Timing.Rejoin
		if !met {
			wait = backoff
			backoff = min(2*backoff, maxBackoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)): // so that members do not call in step
		}
	}
}

// toJoin gives those addresses that are of nobody in the list.
func (m *Members) toJoin(addresses []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := map[string]bool{m.gossip: true}
	for _, n := range m.nodes {
		here[n.gossip] = true
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return here[a] })
}

// toCall adds some members that went to those that are to be joined: the
// configured ones and those that were found.
func (m *Members) toCall(now time.Time, found []string) []string {
	calls := m.toJoin(slices.Concat(m.config.Join, found))
	m.mu.Lock()
	defer m.mu.Unlock()
	some := goneCalls
	for address, at := range m.gone { // in random order
		if now.Sub(at) > goneFor {
			delete(m.gone, address)
		} else if some > 0 && !slices.Contains(calls, address) {
			some--
			calls = append(calls, address)
		}
	}
	return calls
}

// call compares lists with the member at an address, and tells whether there
// was one.
func (m *Members) call(ctx context.Context, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false // Validate has refused it
	}
	// Names are resolved here: memberlist does it without a deadline.
	limited, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	hosts := []string{host}
	if net.ParseIP(host) == nil {
		if hosts, err = net.DefaultResolver.LookupHost(limited, host); err != nil {
			m.logUnreached(address, err)
			return false
		}
	}
	met := false
	for _, h := range hosts {
		if limited.Err() != nil {
			break
		}
		if _, err := m.list.Join([]string{net.JoinHostPort(h, port)}); err != nil {
			m.logUnreached(address, err)
			continue
		}
		met = true
	}
	return met
}

func (m *Members) logUnreached(address string, err error) {
	if m.quiet.due("unreached "+address, time.Now()) {
		m.config.Log.Info("a member to join does not answer", slog.String("address", address), slog.Any("err", err))
	}
}
