package bourse

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Role is what a server of the cluster does.
type Role string

// The roles.
const (
	RoleWorker Role = "worker"
	RoleBroker Role = "broker"
	RoleProxy  Role = "proxy"
)

// ServerRoles returns the roles that members of a cluster have.
func ServerRoles() []Role { return []Role{RoleWorker, RoleBroker, RoleProxy} }

// RoleScraper is the role of a client that reads servers' metrics and may do
// nothing else. It is no server: it is in certificates and files of tokens only.
const RoleScraper Role = "scraper"

// Member is what every server knows of another: a hint, as old as the last
// gossip.
type Member struct {
	ID      WorkerID  `json:"id"` // the server's name; a worker's id
	Role    Role      `json:"role"`
	Region  Region    `json:"region,omitempty"`
	Address string    `json:"address"`           // host:port of its API
	Tag     WorkerTag `json:"tag,omitempty"`     // workers only
	Free    Amounts   `json:"free,omitempty"`    // coarse; workers only
	Leaving bool      `json:"leaving,omitempty"` // draining: takes no orders
}

// Facts are what a worker says of itself, its own truth.
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

// Cordon has a worker refuse every new order. What it has goes on, and may be started,
// updated and extended.
type Cordon struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"` // the name of the token that asked
}

// Absence is a worker that belongs to the cluster and cannot be reached: it
// may be dead, cut off, or about to come back with all that it had.
type Absence struct {
	// Member is what was known of it; Leaving says that it left in good order.
	Member
	// Since is when it was found to be absent. What was begun later is not
	// there.
	Since time.Time
	// LostAfter is how long it may be absent; 0: LostAfter.
	LostAfter time.Duration
	// Forgotten: an operator has said that it will not come back.
	Forgotten bool
}

// LostAfter is how long a worker may be absent before it counts as lost for
// good, where the operator says nothing else. It outlives any repetition of a
// request, and is well within the time that a cancellation waits for a worker
// to come back.
const LostAfter = 24 * time.Hour

// MaxLostAfter is the limit of what an operator may say: a cancellation waits
// for a day longer.
const MaxLostAfter = 6 * 24 * time.Hour

// MaxSkew is how far clients' clocks may be from ours for the time in an
// order's id to mean something.
const MaxSkew = 5 * time.Second

// Lost reports whether the worker is taken for lost for good.
func (a *Absence) Lost(now time.Time) bool {
	return a.Forgotten || now.Sub(a.Since) > cmp.Or(a.LostAfter, LostAfter)
}

// MayHaveFilled reports whether the worker may have filled an order before it
// became absent. It cannot have if the order is younger than its absence,
// which the order's id tells.
func (a *Absence) MayHaveFilled(id OrderID, now time.Time) bool {
	born := id.Time()
	return !born.After(a.Since.Add(MaxSkew)) || born.After(now.Add(MaxSkew))
}

// Time returns the time at which the id says that it was made, the zero time
// when it is malformed.
func (o OrderID) Time() time.Time {
	id, err := ulid.ParseStrict(string(o))
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(id.Time())
}

// Region is a short code such as "gru": 1 to 32 of a-z, 0-9 and "-",
// beginning with a letter. An order for a region is filled there or not at
// all.
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

// Validate reports CodeInvalid unless r has the shape of a region code that
// is no alias.
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

// aliases stand for the well-known regions of a part of the world. Regions of
// an operator's own naming are reached by their code or by "any".
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

// Choice is one entry of a region expression: the regions to try together
// before the next entry is looked at.
type Choice []Region

// ParseRegions reads a region expression, a comma list of codes and aliases
// in order of preference ("lhr,eu" or "any"), against the regions that the
// exchange has now. An alias becomes one choice of all its regions that exist
// and were not named before; an unknown code is CodeInvalid and names what
// there is. The empty expression means "any".
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
