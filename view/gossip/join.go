package gossip

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// Bounds on the delay between rounds of calls while this server is alone.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// formerRetention is how long this server continues to call a former member, which may have been
// lost because of a network failure. formerCalls is the maximum number of former members that are
// called in each round.
const (
	formerRetention = time.Hour
	formerCalls     = 3
)

// join periodically calls the members that are missing from the list, until ctx is done. It closes
// joined after the first round of calls.
func (m *Members) join(ctx context.Context, joined chan<- struct{}) {
	backoff := minBackoff
	alone := aloneTracker{since: time.Now()}
	for first := true; ctx.Err() == nil; first = false {
		why := m.callAll(ctx)
		if first {
			close(joined)
		}
		wait := m.config.Timing.Rejoin
		switch now := time.Now(); {
		case !m.isAlone():
			alone = aloneTracker{since: now}
		case alone.due(now) && ctx.Err() == nil:
			m.logAlone(why, alone.pause)
		}
		if (len(why) > 0 || m.config.Find != nil) && m.isAlone() { // Find may have failed, for example because NATS is not running yet, but it does not return a reason
			wait = backoff
			backoff = min(2*backoff, maxBackoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)): // random, so that members do not call each other simultaneously
		}
	}
}

// callAll calls the missing members. For each configured address where no member answers, the
// result contains the address and the reason.
func (m *Members) callAll(ctx context.Context) (why []string) {
	given := m.toJoin(slices.Concat(m.config.Join, m.config.findAddresses(ctx)))
	gone := m.formerMembers(time.Now())
	for _, address := range given {
		err := m.call(ctx, address)
		if ctx.Err() != nil {
			return why
		}
		if err != nil {
			why = append(why, address+": "+reasonOf(err))
		}
		m.logCall(address, err, slices.Contains(gone, address))
	}
	for _, address := range gone {
		if !slices.Contains(given, address) {
			_ = m.call(ctx, address) // ignore the error, because the loss of the member was logged
		}
	}
	return why
}

// logCall logs that no member answers at a configured address. After logging this for an address,
// it does not log it again until a member has answered there. It does not log the addresses of
// former members. While this server is alone, it does not log anything, because logAlone reports
// the addresses.
func (m *Members) logCall(address string, err error, went bool) {
	switch {
	case err == nil:
		delete(m.unresponsive, address)
	case m.unresponsive[address] || m.isAlone():
	default:
		if !went {
			m.config.Log.Info("call to configured member failed", slog.String("address", address), slog.String("why", reasonOf(err)))
		}
		m.unresponsive[address] = true
	}
}

// toJoin returns the addresses that are not the gossip address of any listed member.
func (m *Members) toJoin(addresses []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := map[string]bool{m.gossip: true}
	for _, n := range m.nodes {
		here[n.gossip] = true
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return here[a] })
}

// formerMembers returns the addresses of at most formerCalls former members, chosen at random.
func (m *Members) formerMembers(now time.Time) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for address, at := range m.former {
		if now.Sub(at) > formerRetention {
			delete(m.former, address)
		} else if len(out) < formerCalls {
			out = append(out, address)
		}
	}
	return out
}

// call exchanges member lists with the member at the given address, so that each of them learns
// about all members. It returns an error if no member answers there.
func (m *Members) call(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err // cannot happen, because Validate has checked the address
	}
	// Resolve names here, because memberlist would do it without a deadline.
	limited, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	hosts := []string{host}
	if net.ParseIP(host) == nil {
		if hosts, err = net.DefaultResolver.LookupHost(limited, host); err != nil {
			return err
		}
	}
	met := false
	for _, h := range hosts {
		if limited.Err() != nil {
			break
		}
		one := m.callOne(net.JoinHostPort(h, port), h)
		met, err = met || one == nil, cmp.Or(one, err)
	}
	if met {
		return nil
	}
	return cmp.Or(err, limited.Err())
}

func (m *Members) callOne(address, host string) error {
	if err := m.reachedFrom(host); err != nil {
		return err
	}
	if _, err := m.list.Join([]string{address}); err != nil {
		return err
	}
	return m.ignoredAt(address)
}
