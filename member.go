package bourse

import "net/netip"

// Role is what a server of the cluster does.
type Role string

// The roles.
const (
	RoleWorker Role = "worker"
	RoleBroker Role = "broker"
)

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

// natsNetwork is where the addresses of servers on NATS are taken from: a
// private range of IPv6 that spells "nats". Nothing is ever sent there as IP.
var natsNetwork = netip.MustParsePrefix("fd6e:6174:7300::/40")

// NATSNetwork gives the range of the addresses of servers that are reached
// through NATS.
func NATSNetwork() netip.Prefix { return natsNetwork }

// OnNATS tells whether host:port is the address of a server that is reached
// through NATS, and not by dialing it.
func OnNATS(hostport string) bool {
	a, err := netip.ParseAddrPort(hostport)
	return err == nil && natsNetwork.Contains(a.Addr())
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
}
