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

// A server that has no other is in no cluster: a worker gets no orders, a broker
// has no one to place them. It goes on calling, and says so again and again.
const (
	aloneAfter    = 2 * time.Second // a cluster may be started all at once
	minAlonePause = 10 * time.Second
	maxAlonePause = 5 * time.Minute
)

// solitude is for how long a server has been alone.
type solitude struct {
	since time.Time
	pause time.Duration // until it is said again; 0: it was not said
	next  time.Time
}

// due reports whether it is time to say so.
func (s *solitude) due(now time.Time) bool {
	if s.pause == 0 && now.Sub(s.since) < aloneAfter || now.Before(s.next) {
		return false
	}
	s.pause = min(max(2*s.pause, minAlonePause), maxAlonePause)
	s.next = now.Add(s.pause)
	return true
}

// isAlone reports whether there is no other member that is proven.
func (m *Members) isAlone() bool {
	return !slices.ContainsFunc(m.snapshot().members, func(x bourse.Member) bool { return x.ID != m.config.Self.ID })
}

// Bounds of the reasons in one line.
const (
	maxReasons = 4
	maxReason  = 200 // bytes of one
)

// logAlone says that this server is in no cluster, and why as far as is known.
func (m *Members) logAlone(why []string, again time.Duration) {
	m.mu.Lock()
	for _, d := range m.doubtful {
		if d.tries > 0 {
			why = append(why, fmt.Sprintf("%s at %s has not proven who it is", d.node.member.ID, d.node.member.Address))
		}
	}
	m.mu.Unlock()
	if n := len(why) - maxReasons; n > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("and %d more", n))
	}
	if len(why) == 0 {
		why = []string{m.notCalled()}
	}
	m.config.Log.Warn("in no cluster: this server knows no other", slog.String("why", strings.Join(why, "; ")),
		slog.String("gossip", m.gossip), slog.Duration("again_in", again))
}

// notCalled is why a server is alone that has no one to call.
func (m *Members) notCalled() string {
	switch {
	case m.config.Find != nil:
		return "no other server of the cluster is on the network that it was given"
	case len(m.config.Join) == 0:
		return "it was given no --join, and no other server has joined it"
	}
	return "the members that it had are gone"
}

// maxIgnored bounds the addresses at which members were ignored.
const maxIgnored = 64

// noteIgnored remembers why who is at an address is no member. The caller holds
// no lock.
func (m *Members) noteIgnored(address string, why error) {
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

// reachedFrom reports why a member at an address of another host could not reach
// this one: who calls it nevertheless is in its list for seconds, again and again.
func (m *Members) reachedFrom(host string) error {
	ip, _ := netip.ParseAddr(host) // of what is none it cannot be told
	own := m.config.Bind.Addr().Unmap()
	if m.config.Advertise.IsValid() || !own.IsLoopback() || !ip.IsValid() || ip.Unmap().IsLoopback() || isOurs(ip.Unmap()) {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "this server is at %s, which no other host reaches: give --gossip an address of this host", m.gossip)
}

// isOurs reports whether an address is one of this host.
func isOurs(ip netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == ip
	})
}

// reasonOf is why a call brought no member, in a few words. memberlist keeps no
// causes, only their texts.
func reasonOf(err error) string {
	text := err.Error()
	for _, known := range []struct{ part, says string }{
		{"connection refused", "no server listens there"},
		{"no route to host", "no route to it"},
		{"network is unreachable", "no route to it"},
		{"no such host", "no such host"},
		{"timeout", "no answer"},
		{"deadline exceeded", "no answer"},
		{"no key of ours opens it", "it has another --gossip-key, or is of another --cluster"},
		{"EOF", "it hangs up: it has another --gossip-key, or is of another --cluster"},
		{"connection reset", "it hangs up: it has another --gossip-key, or is of another --cluster"},
		{"broken pipe", "it hangs up: it has another --gossip-key, or is of another --cluster"},
	} {
		if strings.Contains(text, known.part) {
			return known.says
		}
	}
	if bourse.CodeOf(err) != bourse.CodeInternal {
		return bourse.MessageOf(err)
	}
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), maxReason)]
}
