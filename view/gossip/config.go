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

// Config configures a member.
type Config struct {
	Self      bourse.Member  // this server; ID, Role, Address (of its API) and, for a worker, Region are required; Free is not sent
	Bind      netip.AddrPort // gossip address, TCP and UDP; port 0 means any free port; required unless Transport is set
	Advertise netip.AddrPort // gossip address for other members, if it differs from Bind
	Join      []string       // host:port addresses of members to call; if empty, this member waits until others call it
	// Find, if set, returns the host:port addresses of additional members to call. It is called repeatedly, and must
	// enforce its own timeout.
	Find      func(ctx context.Context) []string
	ClusterID string       // ID of the cluster, in the alphabet of app names; default "bourse"; gossip of other clusters is ignored
	Key       []byte       // encrypts the gossip: 16, 24 or 32 bytes; default: a publicly known key
	MoreKeys  [][]byte     // additional keys that other members may use; see SetKeys
	Proofs    Proofs       // verifies members' metadata; nil: no verification
	Timing    Timing       //
	Log       *slog.Logger // default: discards all records
	// OnLost is called for each member that has left or is lost, by one goroutine at a time. at is the time when
	// this server noticed the loss. OnLost may block.
	OnLost    func(member bourse.Member, at time.Time)
	Rumors    Rumors               // receives and supplies rumors; default: no rumors
	Transport memberlist.Transport // default: TCP and UDP sockets
}

// Rumors supplies additional messages, which are sent to random members in membership packets. It also receives the
// messages that other members send this way. Its methods are called concurrently, and must not block.
type Rumors interface {
	// Receive handles a message from another member. It must not retain message.
	Receive(message []byte)
	// Next returns messages for one packet, which may be sent to any member. Their total length,
	// plus overhead bytes for each message, is at most limit bytes.
	Next(overhead, limit int) [][]byte
}

type noRumors struct{}

func (noRumors) Receive([]byte)         {}
func (noRumors) Next(_, _ int) [][]byte { return nil }

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
	if c.Rumors == nil {
		c.Rumors = noRumors{}
	}
	c.Timing = c.Timing.withDefaults()
	return c
}

// findAddresses calls Find, if it is set, and returns the result.
func (c *Config) findAddresses(ctx context.Context) []string {
	if c.Find == nil {
		return nil
	}
	return c.Find(ctx)
}

// Validate returns CodeInvalid for an invalid config.
func (c *Config) Validate() error {
	if err := validateMember(&c.Self); err != nil {
		return err
	}
	if bourse.AppName(c.ClusterID).Validate() != nil { // a cluster ID has the same alphabet as app names
		return bourse.Errorf(bourse.CodeInvalid, "cluster id %s: use a-z, 0-9 and \"-\"", bourse.Quoted(c.ClusterID))
	}
	if err := validateKeys(c.keys()); err != nil {
		return err
	}
	if !c.Bind.IsValid() && c.Transport == nil {
		return bourse.Errorf(bourse.CodeInvalid, "no gossip address is set")
	}
	for _, j := range c.Join {
		if err := validateAddress(j); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "join: %w", err)
		}
	}
	return nil
}

// keys returns all keys, or nil if there are none. The first key is used for encryption.
func (c *Config) keys() [][]byte {
	if len(c.Key) == 0 {
		return nil
	}
	return append([][]byte{c.Key}, c.MoreKeys...)
}

// label returns the label that identifies the cluster in each packet. Packets with other labels are
// dropped.
func (c *Config) label() string { return "bourse/" + c.ClusterID }

// gossip returns the memberlist configuration for c.
func (c *Config) gossip(name string, transport memberlist.Transport, d *delegate, log gossipLog) *memberlist.Config {
	g := memberlist.DefaultLANConfig()
	g.Name = name
	g.Transport = transport // the transport encrypts messages, so memberlist has no keys
	g.UDPBufferSize = MaxMessage(c.label())
	g.BindAddr, g.BindPort = hostPort(c.Bind)
	g.AdvertiseAddr, g.AdvertisePort = hostPort(c.Advertise)
	g.ProbeInterval, g.ProbeTimeout = c.Timing.Probe, c.Timing.ProbeTimeout
	g.SuspicionMult, g.SuspicionMaxTimeoutMult = c.Timing.Suspicion, maxSuspicion
	g.AwarenessMaxMultiplier = maxHealthMultiplier
	g.RetransmitMult = retransmit
	g.GossipNodes = 5 // a larger value is not more expensive, because memberlist limits the number of transmissions, not their rate
	g.GossipInterval, g.PushPullInterval = c.Timing.Gossip, c.Timing.PushPull
	g.TCPTimeout = streamTimeout
	g.EnableCompression = false // receivers do not decompress messages, see sealed_transport.go
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
