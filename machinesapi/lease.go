package machinesapi

import "github.com/bourse-dev/bourse"

// LeaseRequest is the optional body of a request for a lease.
type LeaseRequest struct {
	TTL         int64  `json:"ttl,omitempty"` // in seconds; default 60
	Description string `json:"description,omitempty"`
}

// LeaseEnvelope is the reply to a request for a lease.
type LeaseEnvelope struct {
	Status string `json:"status"` // always "success"
	Data   Lease  `json:"data"`
}

// Lease is a machine's lease as shown to its holder.
type Lease struct {
	Nonce       string            `json:"nonce"`
	ExpiresAt   int64             `json:"expires_at"` // seconds since 1970
	Owner       string            `json:"owner"`
	Description string            `json:"description"`
	Version     bourse.InstanceID `json:"version"` // the machine's version
}

// LeaseInfo is a machine's lease as shown to other callers.
type LeaseInfo struct {
	Owner       string `json:"owner"`
	Description string `json:"description"`
	ExpiresAt   int64  `json:"expires_at"` // seconds since 1970
}

// Released is the reply to a request that releases a lease.
type Released struct {
	Status string `json:"status"` // always "success"
	Data   OK     `json:"data"`
}

// FromLease converts a lease for its holder. version is the version of the machine.
func FromLease(l *bourse.Lease, version bourse.InstanceID) LeaseEnvelope {
	return LeaseEnvelope{Status: "success", Data: Lease{
		Nonce: l.Nonce, ExpiresAt: l.ExpiresAt.Unix(), Owner: l.Owner, Description: l.Description, Version: version,
	}}
}

// InfoFromLease converts a lease for callers other than its holder.
func InfoFromLease(l *bourse.Lease) *LeaseInfo {
	return &LeaseInfo{Owner: l.Owner, Description: l.Description, ExpiresAt: l.ExpiresAt.Unix()}
}
