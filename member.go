package bourse

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Role is the role of a server in the cluster.
type Role string

// Roles.
const (
	RoleWorker Role = "worker"
	RoleBroker Role = "broker"
	RoleProxy  Role = "proxy"
)

// ServerRoles returns the roles that members of a cluster can have.
func ServerRoles() []Role { return []Role{RoleWorker, RoleBroker, RoleProxy} }

// RoleScraper is the role of a client that may only read the metrics of servers. The role occurs
// only in certificates and token files, and is never the role of a server.
const RoleScraper Role = "scraper"

// Member describes a server to other servers. It is a hint, and only as current as the latest
// gossip.
type Member struct {
	ID      WorkerID  `json:"id"` // name of the server; for a worker, its ID
	Role    Role      `json:"role"`
	Region  Region    `json:"region,omitempty"`
	Address string    `json:"address"`           // address of the server's API, as host:port
	Tag     WorkerTag `json:"tag,omitempty"`     // for workers only
	Free    Amounts   `json:"free,omitempty"`    // approximate amounts of free resources; for workers only
	Leaving bool      `json:"leaving,omitempty"` // the worker is draining and accepts no orders
}

// Facts is a worker's description of itself.
type Facts struct {
	Worker   WorkerID          `json:"worker"`
	Tag      WorkerTag         `json:"tag"`
	Region   Region            `json:"region"`
	Version  string            `json:"version"`
	Labels   map[string]string `json:"labels,omitempty"` // labels such as arch, os and limit.memory, and those that the operator has defined
	Accounts []Account         `json:"accounts"`
	Machines map[State]int     `json:"machines"`
	Drivers  []string          `json:"drivers"`
	Load     float64           `json:"load"`
	Cordon   *Cordon           `json:"cordon,omitempty"` // nil: the worker accepts orders
	Mesh     *Mesh             `json:"mesh,omitempty"`   // nil: the worker does not connect its private networks to other workers
}

// Mesh describes a worker's end of the mesh, which connects the private networks of different workers.
type Mesh struct {
	Key      []byte         `json:"key"`               // Ed25519 public key; its X25519 form is the WireGuard key
	Proof    []byte         `json:"proof"`             // signature of the worker's ID, which proves that the worker owns the key
	Endpoint netip.AddrPort `json:"endpoint,omitzero"` // for WireGuard's packets; zero if other workers cannot reach this one
	Peers    []MeshPeer     `json:"peers,omitempty"`   // only in the worker's own answers
}

// MeshPeer describes the connection to another worker that has machines in the same private networks.
type MeshPeer struct {
	Worker    WorkerID       `json:"worker"`
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`  // the address from which the peer sends packets, or is expected to send them
	Handshake time.Time      `json:"handshake,omitzero"` // time of the latest handshake; zero: none yet
	Received  int64          `json:"received"`           // bytes
	Sent      int64          `json:"sent"`               // bytes
	Machines  int            `json:"machines"`           // number of the peer's machines in these networks
}

// MeshReachable is how long a peer counts as reachable after its latest handshake. WireGuard
// repeats the handshake every two minutes, and drops a peer's packets if the latest handshake was
// more than three minutes ago.
const MeshReachable = 3 * time.Minute

// Reachable reports whether packets reach the peer.
func (p *MeshPeer) Reachable(now time.Time) bool { return now.Sub(p.Handshake) < MeshReachable }

// Cordon makes a worker refuse all new orders. Its existing machines continue to run, and may be
// started, updated and extended.
type Cordon struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"` // name of the token that was used to cordon the worker
}

// Absence describes a worker of the cluster that cannot be reached. It may be dead or disconnected,
// and it may return with all of its machines.
type Absence struct {
	// Member is the last known description of the worker. If Leaving is set, the worker has left
	// cleanly.
	Member
	// Since is when the absence began. The worker cannot have filled orders that were placed later.
	Since time.Time
	// LostAfter is how long the worker must be absent before it counts as lost. 0 means the
	// package constant LostAfter.
	LostAfter time.Duration
	// Removed is set if an operator has removed the worker from the cluster.
	Removed bool
}

// LostAfter is how long a worker must be absent, by default, before it counts as permanently lost.
// Clients stop repeating a request before this time has passed, and cancellations for an absent
// worker are kept beyond it.
const LostAfter = 24 * time.Hour

// MaxLostAfter is the longest time that an operator may choose instead of LostAfter. Cancellations
// are kept one day longer.
const MaxLostAfter = 6 * 24 * time.Hour

// MaxSkew is the maximum accepted difference between a client's clock and this server's clock. If
// the difference is larger, the time in an order's ID is ignored.
const MaxSkew = 5 * time.Second

// Lost reports whether the worker counts as permanently lost.
func (a *Absence) Lost(now time.Time) bool {
	return a.Removed || now.Sub(a.Since) > cmp.Or(a.LostAfter, LostAfter)
}

// MayHaveFilled reports whether the worker may have filled an order before it became absent. It
// cannot have filled an order whose ID contains a time that is more than MaxSkew after the start of
// the absence. If that time is more than MaxSkew in the future, it is ignored, and the result is
// true.
func (a *Absence) MayHaveFilled(id OrderID, now time.Time) bool {
	born := id.Time()
	return !born.After(a.Since.Add(MaxSkew)) || born.After(now.Add(MaxSkew))
}

// Time returns the time in the ID, or the zero time if the ID is malformed.
func (o OrderID) Time() time.Time {
	id, err := ulid.ParseStrict(string(o))
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(id.Time())
}

// Region is a short code such as "gru". It consists of 1 to 32 characters (a-z, 0-9 and "-"), and
// begins with a letter. An order for a region is filled only there.
type Region string

// wellFormed reports whether r has the form of a region code or an alias.
func (r Region) wellFormed() bool {
	for i := range len(r) {
		if !isLetter(r[i]) && (i == 0 || !isDigit(r[i]) && r[i] != '-') {
			return false
		}
	}
	return r != "" && len(r) <= 32
}

// Validate returns CodeInvalid unless r has the form of a region code and is not an alias.
func (r Region) Validate() error {
	if !r.wellFormed() {
		return Errorf(CodeInvalid, "region %s: want a short code such as gru", Quoted(string(r)))
	}
	if isAlias(r) {
		return Errorf(CodeInvalid, "region %s is an alias for several regions: a worker belongs to one", r)
	}
	return nil
}

// RegionAny is the alias for all regions of the exchange.
const RegionAny Region = "any"

// aliases maps each alias for a part of the world to the well-known regions there. Regions whose
// names are not in this list can be selected only by their code or with "any".
var aliases = map[Region][]Region{
	"eu":   {"ams", "arn", "cdg", "fra", "lhr", "mad", "otp", "waw"},
	"na":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "qro", "sea", "sjc", "yul", "yyz"},
	"us":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"usa":  {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"sa":   {"bog", "eze", "gdl", "gig", "gru", "scl"},
	"apac": {"bom", "hkg", "nrt", "sin", "syd"},
}

func isAlias(r Region) bool { return r == RegionAny || aliases[r] != nil }

// maxRegions is the maximum number of entries in a region expression, before it is resolved.
const maxRegions = 64

// Choice is one entry of a region expression. Its regions are tried together, before those of the
// next entry.
type Choice []Region

// ParseRegions resolves a region expression to the current regions of the exchange. A region
// expression is a comma-separated list of codes and aliases in order of preference, such as
// "lhr,eu" or "any". An alias becomes one choice, which contains all of its existing regions except
// those that earlier entries contain. An empty expression means "any". ParseRegions returns
// CodeInvalid if an entry is malformed or an unknown code, if there are too many entries, or if no
// region matches.
func ParseRegions(expression string, known []Region) ([]Choice, error) {
	if strings.TrimSpace(expression) == "" {
		expression = string(RegionAny)
	}
	words := strings.Split(expression, ",")
	if len(words) > maxRegions {
		return nil, Errorf(CodeInvalid, "region expression has %d entries: at most %d", len(words), maxRegions)
	}
	var out []Choice
	seen := map[Region]bool{}
	for _, word := range words {
		r := Region(strings.ToLower(strings.TrimSpace(word)))
		if !r.wellFormed() {
			return nil, Errorf(CodeInvalid, "region %s: want a short code such as gru, or a list of them", Quoted(word))
		}
		var choice Choice
		for _, region := range expand(r, known) {
			if !seen[region] {
				seen[region] = true
				choice = append(choice, region)
			}
		}
		if len(choice) > 0 {
			out = append(out, choice)
			continue
		}
		if !isAlias(r) && !seen[r] {
			return nil, Errorf(CodeInvalid, "unknown region %s: the available regions are %s", Quoted(string(r)), listRegions(known))
		}
	}
	if len(out) == 0 {
		return nil, Errorf(CodeInvalid, "no region matches %s: the available regions are %s", Quoted(expression), listRegions(known))
	}
	return out, nil
}

func expand(r Region, known []Region) []Region {
	if r == RegionAny {
		return known
	}
	if members := aliases[r]; members != nil {
		return slices.DeleteFunc(slices.Clone(members), func(m Region) bool { return !slices.Contains(known, m) })
	}
	if slices.Contains(known, r) {
		return []Region{r}
	}
	return nil
}

func listRegions(known []Region) string {
	if len(known) == 0 {
		return "none (no workers are known)"
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
