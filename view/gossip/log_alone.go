package gossip

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// A server that does not find any other member is not part of a cluster. If it is a worker, it does
// not receive orders; if it is a broker, it cannot place any. The server continues to look for
// other members, and logs a warning at increasing intervals.
const (
	aloneDelay    = 2 * time.Second // enough time for servers that start simultaneously to find each other
	minAlonePause = 10 * time.Second
	maxAlonePause = 5 * time.Minute
)

// aloneTracker tracks how long a server has been alone.
type aloneTracker struct {
	since time.Time
	pause time.Duration // time until the next warning; 0 if none has been logged
	next  time.Time
}

// due reports whether it is time to log a warning. If so, it schedules the next one.
func (s *aloneTracker) due(now time.Time) bool {
	if s.pause == 0 && now.Sub(s.since) < aloneDelay || now.Before(s.next) {
		return false
	}
	s.pause = min(max(2*s.pause, minAlonePause), maxAlonePause)
	s.next = now.Add(s.pause)
	return true
}

// isAlone reports whether this server does not know any other member that has proven its identity.
func (m *Members) isAlone() bool {
	return !slices.ContainsFunc(m.snapshot().members, func(x bourse.Member) bool { return x.ID != m.config.Self.ID })
}

// Limits on the reasons in one log record.
const (
	maxReasons = 4
	maxReason  = 200 // bytes per reason
)

// logAlone logs a warning that this server is not part of a cluster, with any known reasons. again
// is the time until the next warning.
func (m *Members) logAlone(why []string, again time.Duration) {
	m.mu.Lock()
	for _, d := range m.unverified {
		if d.tries > 0 {
			why = append(why, fmt.Sprintf("%s at %s has not proven its identity", d.node.member.ID, d.node.member.Address))
		}
	}
	m.mu.Unlock()
	if n := len(why) - maxReasons; n > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", n))
	}
	if len(why) == 0 {
		why = []string{m.notCalled()}
	}
	m.config.Log.Warn("not in a cluster, no other server found", slog.String("why", strings.Join(why, "; ")),
		slog.String("gossip", m.gossip), slog.Duration("again_in", again))
}

// notCalled explains why this server is alone if it had no address to call.
func (m *Members) notCalled() string {
	switch {
	case m.config.Find != nil:
		return "no other server of the cluster is on the configured network"
	case len(m.config.Join) == 0:
		return "no --join is set, and no other server has joined this one"
	}
	return "all former members are gone"
}

// maxIgnored is the maximum number of remembered addresses of servers that were not accepted as
// members.
const maxIgnored = 64

// recordIgnored records why the server at the given address was not accepted as a member. The
// caller must not hold the lock.
func (m *Members) recordIgnored(address string, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ignored == nil || len(m.ignored) >= maxIgnored {
		m.ignored = map[string]error{}
	}
	m.ignored[address] = why
}

func (m *Members) ignoredAt(address string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ignored[address]
}

// reachedFrom returns an error if members on the given host cannot reach this server. If this
// server called such a member anyway, the member would repeatedly add this server to its list and
// drop it a few seconds later.
func (m *Members) reachedFrom(host string) error {
	ip, _ := netip.ParseAddr(host) // a host that is not an IP address is assumed to be able to reach this server
	own := m.config.Bind.Addr().Unmap()
	if m.config.Advertise.IsValid() || !own.IsLoopback() || !ip.IsValid() || ip.Unmap().IsLoopback() || isLocalAddress(ip.Unmap()) {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "this server gossips at %s, which other hosts cannot reach: set --gossip to an address of this host", m.gossip)
}

// isLocalAddress reports whether an address belongs to this host.
func isLocalAddress(ip netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == ip
	})
}

// reasonOf returns a short reason for a failed call. It searches the error's text, because
// memberlist preserves only the texts of the underlying errors.
func reasonOf(err error) string {
	text := err.Error()
	for _, known := range []struct{ part, reason string }{
		{"connection refused", "connection refused"},
		{"no route to host", "no route to host"},
		{"network is unreachable", "network is unreachable"},
		{"no such host", "no such host"},
		{"timeout", "no answer"},
		{"deadline exceeded", "no answer"},
		{errSealed.Error(), "its gossip key or --cluster is different"},
		{"EOF", "it closes the connection: its gossip key or --cluster is different"},
		{"connection reset", "it closes the connection: its gossip key or --cluster is different"},
		{"broken pipe", "it closes the connection: its gossip key or --cluster is different"},
	} {
		if strings.Contains(text, known.part) {
			return known.reason
		}
	}
	if bourse.CodeOf(err) != bourse.CodeInternal {
		return bourse.MessageOf(err)
	}
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), maxReason)]
}
