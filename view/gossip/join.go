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

// Delays between rounds of calls while this server is alone and looks for other servers.
const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// formerRetention is how long the server continues to call a former member, which may have been lost
// because of a network failure. Each round calls formerCalls former members.
const (
	formerRetention = time.Hour
	formerCalls     = 3
)

// join calls the members that are missing from the list, in rounds, until ctx ends. It closes
// joined after the first round.
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
		if (len(why) > 0 || m.config.Find != nil) && m.isAlone() { // if Find fails, it does not return a reason, for example before NATS runs
			wait = backoff
			backoff = min(2*backoff, maxBackoff)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)): // random, so that members do not call simultaneously
		}
	}
}

// callAll calls the missing members. For each configured address that no member answers at, it
// returns the address with the reason.
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
			_ = m.call(ctx, address) // the failure was logged when the member was lost
		}
	}
	return why
}

// logCall logs a configured address that does not answer, once until it answers again. It does
// not log the addresses of former members. While the server is alone, it logs nothing, because
// logAlone reports the addresses.
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

// toJoin returns those of the given addresses at which no member in the list gossips.
func (m *Members) toJoin(addresses []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := map[string]bool{m.gossip: true}
	for _, n := range m.nodes {
		here[n.gossip] = true
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return here[a] })
}

// formerMembers returns the addresses of some former members, in random order.
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

// call exchanges member lists with the member at the given address. It returns an error if no
// member answers there.
func (m *Members) call(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err // cannot happen, because Validate has checked the address
	}
	// Resolve names here, because memberlist does so without a deadline.
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
