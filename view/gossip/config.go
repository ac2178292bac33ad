package gossip

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// Config is what a member is opened with.
type Config struct {
	Self      bourse.Member  // required, but for Tag; its Address is that of its API; Free is not sent
	Bind      netip.AddrPort // required without Transport: where it gossips, TCP and UDP; port 0 means any
	Advertise netip.AddrPort // where others reach it, when that is not Bind
	Join      []string       // members to call, host:port; none means: wait to be called
	// Find returns members to call, host:port, where they are not known before;
	// none when there are none. It is called again and again, and bounds its
	// own time.
	Find      func(ctx context.Context) []string
	ClusterID string       // alphabet of an app name; default "bourse". Gossip of others is ignored
	Key       []byte       // encrypts the gossip: 16, 24 or 32 bytes; nil: with a key that everyone knows
	MoreKeys  [][]byte     // what others encrypt with may have one of these, too; see SetKeys
	Proofs    Proofs       // of what members say of themselves; nil: none are asked for
	Timing    Timing       //
	Log       *slog.Logger // default: none
	// OnLost is called, from one goroutine at a time, for each member that has
	// left or was lost, with the time at which this member learned of it. It
	// may take its time.
	OnLost    func(member bourse.Member, at time.Time)
	Rumours   Rumours              // default: none
	Transport memberlist.Transport // default: sockets
}

// Rumours is what travels with the gossip of the membership, in packets to
// random members. Its methods are called from many goroutines and must not
// block.
type Rumours interface {
	// Hear takes a message of another member; it is the caller's again when
	// Hear returns.
	Receive(message []byte)
	// Next returns messages for one packet, to any member: with overhead
	// bytes added to each, they have limit bytes together.
	Next(overhead, limit int) [][]byte
}

type noRumours struct{}

func (noRumours) Receive([]byte)         {}
func (noRumours) Next(_, _ int) [][]byte { return nil }

func (c Config) withDefaults() Config {
	if c.ClusterID == "" {
		c.ClusterID = "bourse"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnLost == nil {
		c.OnLost = func(bourse.Member, time.Time) {}
	}
	if c.Rumours == nil {
		c.Rumours = noRumours{}
	}
	c.Timing = c.Timing.withDefaults()
	return c
}

// found returns members that were found.
func (c *Config) found(ctx context.Context) []string {
	if c.Find == nil {
		return nil
	}
	return c.Find(ctx)
}

// Validate reports CodeInvalid for a config that no member can have.
func (c *Config) Validate() error {
	if err := validateMember(&c.Self); err != nil {
		return err
	}
	if bourse.AppName(c.ClusterID).Validate() != nil { // the same alphabet
		return bourse.Errorf(bourse.CodeInvalid, "cluster id %s: use a-z, 0-9 and \"-\"", bourse.Quoted(c.ClusterID))
	}
	if err := validateKeys(c.keys()); err != nil {
		return err
	}
	if !c.Bind.IsValid() && c.Transport == nil {
		return bourse.Errorf(bourse.CodeInvalid, "there is no address to gossip on")
	}
	for _, j := range c.Join {
		if err := validateAddress(j); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "join: %w", err)
		}
	}
	return nil
}

// keys returns all keys, the first encrypts; none without one.
func (c *Config) keys() [][]byte {
	if len(c.Key) == 0 {
		return nil
	}
	return append([][]byte{c.Key}, c.MoreKeys...)
}

// label is on each packet: those of other clusters are dropped.
func (c *Config) label() string { return "bourse/" + c.ClusterID }

// gossip makes memberlist's config of ours.
func (c *Config) gossip(name string, transport memberlist.Transport, d *delegate, log gossipLog) *memberlist.Config {
	g := memberlist.DefaultLANConfig()
	g.Name = name
	g.Transport = transport // which encrypts
	g.UDPBufferSize = Room(c.label())
	g.BindAddr, g.BindPort = hostPort(c.Bind)
	g.AdvertiseAddr, g.AdvertisePort = hostPort(c.Advertise)
	g.ProbeInterval, g.ProbeTimeout = c.Timing.Probe, c.Timing.ProbeTimeout
	g.SuspicionMult, g.SuspicionMaxTimeoutMult = c.Timing.Suspicion, maxSuspicion
	g.AwarenessMaxMultiplier = maxSlower
	g.RetransmitMult = retransmit
	g.GossipNodes = 5 // costs no more: how often news is sent is bounded, not how fast
	g.GossipInterval, g.PushPullInterval = c.Timing.Gossip, c.Timing.PushPull
	g.TCPTimeout = streamTimeout
	g.EnableCompression = false // no one unpacks it, see package sealed
	g.Delegate, g.Events, g.Alive, g.Conflict = d, d, d, d
	g.LogOutput = log
	return g
}

func hostPort(a netip.AddrPort) (host string, port int) {
	if !a.IsValid() {
		return "", 0
	}
	return a.Addr().String(), int(a.Port())
}

func joinHostPort(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}
