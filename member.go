package bourse

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Role is the role of a server in the cluster.
type Role string

// The roles.
const (
	RoleWorker Role = "worker"
	RoleBroker Role = "broker"
	RoleProxy  Role = "proxy"
)

// ServerRoles returns the roles of a cluster's members.
func ServerRoles() []Role { return []Role{RoleWorker, RoleBroker, RoleProxy} }

// RoleScraper is the role of a client that may only read servers' metrics. It appears in
// certificates and token files, and is not the role of a server.
const RoleScraper Role = "scraper"

// Member describes a server to the others. It is a hint, as old as the last gossip.
type Member struct {
	ID      WorkerID  `json:"id"` // the server's name; a worker's id
	Role    Role      `json:"role"`
	Region  Region    `json:"region,omitempty"`
	Address string    `json:"address"`           // host:port of its API
	Tag     WorkerTag `json:"tag,omitempty"`     // workers only
	Free    Amounts   `json:"free,omitempty"`    // coarse; workers only
	Leaving bool      `json:"leaving,omitempty"` // draining: takes no orders
}

// Facts describes a worker, as reported by itself.
type Facts struct {
	Worker   WorkerID          `json:"worker"`
	Tag      WorkerTag         `json:"tag"`
	Region   Region            `json:"region"`
	Version  string            `json:"version"`
	Labels   map[string]string `json:"labels,omitempty"` // arch, os, limit.memory … and the operator's own
	Accounts []Account         `json:"accounts"`
	Machines map[State]int     `json:"machines"`
	Drivers  []string          `json:"drivers"`
	Load     float64           `json:"load"`
	Cordon   *Cordon           `json:"cordon,omitempty"` // nil: it takes orders
}

// Cordon makes a worker refuse every new order. Its machines continue, and may be
// started, updated and extended.
type Cordon struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"` // the name of the token that asked
}

// Absence describes a worker of the cluster that is unreachable. It may be dead or
// disconnected, or may return with all its machines.
type Absence struct {
	// Member is its last known description; Leaving means that it left cleanly.
	Member
	// Since is the time from which it was absent. Orders begun later were not filled there.
	Since time.Time
	// LostAfter is the longest absence before it counts as lost; 0 means LostAfter.
	LostAfter time.Duration
	// Forgotten means that an operator has removed it from the cluster.
	Forgotten bool
}

// LostAfter is the default time of absence after which a worker counts as lost for good.
// It is longer than clients repeat a request, and shorter than the time for which a
// cancellation waits for a worker to return.
const LostAfter = 24 * time.Hour

// MaxLostAfter is the largest value that an operator may choose. A cancellation waits a
// day longer.
const MaxLostAfter = 6 * 24 * time.Hour

// MaxSkew is the largest difference between a client's clock and ours with which the time
// in an order's id is still used.
const MaxSkew = 5 * time.Second

// Lost reports whether the worker counts as lost for good.
func (a *Absence) Lost(now time.Time) bool {
	return a.Forgotten || now.Sub(a.Since) > cmp.Or(a.LostAfter, LostAfter)
}

// MayHaveFilled reports whether the worker may have filled an order before it became
// absent. It cannot have if the time in the order's id is later than the absence.
func (a *Absence) MayHaveFilled(id OrderID, now time.Time) bool {
	born := id.Time()
	return !born.After(a.Since.Add(MaxSkew)) || born.After(now.Add(MaxSkew))
}

// Time returns the time in the id, or the zero time if it is malformed.
func (o OrderID) Time() time.Time {
	id, err := ulid.ParseStrict(string(o))
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(id.Time())
}

// Region is a short code such as "gru": 1 to 32 of a-z, 0-9 and "-", beginning with a
// letter. An order for a region is filled only there.
type Region string

// wellFormed reports whether r has the shape of a code or an alias.
func (r Region) wellFormed() bool {
	for i := range len(r) {
		if !isLetter(r[i]) && (i == 0 || !isDigit(r[i]) && r[i] != '-') {
			return false
		}
	}
	return r != "" && len(r) <= 32
}

// Validate returns CodeInvalid unless r is a well-formed region code and not an alias.
func (r Region) Validate() error {
	if !r.wellFormed() {
		return Errorf(CodeInvalid, "region %s: want a short code such as gru", Quoted(string(r)))
	}
	if isAlias(r) {
		return Errorf(CodeInvalid, "region %s is an alias for several: a worker stands in one", r)
	}
	return nil
}

// RegionAny is the alias for every region of the exchange.
const RegionAny Region = "any"

// aliases maps parts of the world to their well-known regions. Regions with an operator's
// own names are selected by their code or by "any".
var aliases = map[Region][]Region{
	"eu":   {"ams", "arn", "cdg", "fra", "lhr", "mad", "otp", "waw"},
	"na":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "qro", "sea", "sjc", "yul", "yyz"},
	"us":   {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"usa":  {"atl", "bos", "den", "dfw", "ewr", "iad", "lax", "mia", "ord", "phx", "sea", "sjc"},
	"sa":   {"bog", "eze", "gdl", "gig", "gru", "scl"},
	"apac": {"bom", "hkg", "nrt", "sin", "syd"},
}

func isAlias(r Region) bool { return r == RegionAny || aliases[r] != nil }

// maxRegions bounds a region expression before it is resolved.
const maxRegions = 64

// Choice is one entry of a region expression: regions that are tried together, before the
// next entry.
type Choice []Region

// ParseRegions resolves a region expression, a comma-separated list of codes and aliases
// in order of preference ("lhr,eu" or "any"), to the exchange's current regions. An alias
// becomes one choice of all its existing regions that were not named before. The empty
// expression means "any". It returns CodeInvalid for an unknown code.
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
			return nil, Errorf(CodeInvalid, "unknown region %s: the exchange has %s", Quoted(string(r)), listRegions(known))
		}
	}
	if len(out) == 0 {
		return nil, Errorf(CodeInvalid, "no region fits %s: the exchange has %s", Quoted(expression), listRegions(known))
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
		return "none (no worker has been heard of)"
	}
	names := make([]string, len(known))
	for i, r := range known {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
