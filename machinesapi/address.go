package machinesapi

import (
	"net/netip"
	"time"
)

// IPAssignment is an IP address of an app.
type IPAssignment struct {
	IP          netip.Addr `json:"ip"`
	Region      string     `json:"region"`
	ServiceName string     `json:"service_name"`
	Shared      bool       `json:"shared"`
	CreatedAt   time.Time  `json:"created_at"`
}

// IPAssignments is the reply to a request for an app's addresses.
type IPAssignments struct {
	IPs []IPAssignment `json:"ips"`
}

// AssignIP is the body of a request for an address.
type AssignIP struct {
	Type string `json:"type"` // v4, v6, shared_v4 or private_v6
}
