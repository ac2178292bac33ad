package bourse

import "time"

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
