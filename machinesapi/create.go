package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// CreateMachine is the body of a request to create a machine, and of a request for quotes.
// Deadline, Race, FirstTry and Reservation are Bourse's additions.
type CreateMachine struct {
	Name                    string         `json:"name,omitempty"`
	Region                  string         `json:"region,omitempty"` // a region expression; default "any"
	Config                  *bourse.Config `json:"config"`
	SkipLaunch              bool           `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool           `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64          `json:"lease_ttl,omitempty"`           // in seconds
	SkipSecrets             bool           `json:"skip_secrets,omitempty"`        // the machine does not receive its app's secrets
	MinSecretsVersion       uint64         `json:"min_secrets_version,omitempty"` // minimum version of the app's secrets

	Deadline bourse.Duration `json:"deadline,omitempty"` // time limit for the whole order; default 10 s, or 5 min if an image may have to be pulled
	Race     int             `json:"race,omitempty"`     // number of workers to claim at the same time; the first one to start the machine wins
	// FirstTry states that the client has chosen the order's ID and has never sent it before.
	FirstTry bool `json:"first_try,omitempty"`
	// Reservation is the ID of the reservation whose capacity the machine uses. Only workers that hold
	// capacity for the reservation are asked. It cannot be combined with SkipLaunch or Race.
	Reservation bourse.ReservationID `json:"reservation,omitempty"`
}

// UpdateMachine is the body of a request to update a machine to a new version.
type UpdateMachine struct {
	Config                  *bourse.Config    `json:"config"`                    // the complete config; omitted fields are removed
	Name                    string            `json:"name,omitempty"`            // if set, must be the machine's name
	Region                  string            `json:"region,omitempty"`          // if set, must be the machine's region
	CurrentVersion          bourse.InstanceID `json:"current_version,omitempty"` // if set, must be the machine's version
	SkipLaunch              bool              `json:"skip_launch,omitempty"`     // do not start the new version
	SkipServiceRegistration bool              `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64             `json:"lease_ttl,omitempty"`           // in seconds; acquires or extends the machine's lease
	SkipSecrets             bool              `json:"skip_secrets,omitempty"`        // the machine does not receive its app's secrets
	MinSecretsVersion       uint64            `json:"min_secrets_version,omitempty"` // minimum version of the app's secrets; restarts the machine if necessary
}

// Version is one version of a machine, with its config.
type Version struct {
	Version bourse.InstanceID `json:"version"`
	Config  *bourse.Config    `json:"user_config"`
}

// CreatedMachine is a new machine, with the duration of each step of its order from the reply's
// headers.
type CreatedMachine struct {
	Machine
	Timing Timing `json:"timing,omitempty"`
}

// QuoteReply contains the decision that the broker would make about an order, and warnings about
// ignored fields.
type QuoteReply struct {
	bourse.Decision
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// Review checks the request's config, like [workload.Review].
func (c *CreateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(c.MinSecretsVersion, c.Config)
}

// Review checks the request's config, like [workload.Review].
func (u *UpdateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(u.MinSecretsVersion, u.Config)
}

func reviewWith(minSecrets uint64, c *bourse.Config) ([]bourse.Warning, error) {
	if minSecrets > 0 && c.ImageKind() == bourse.PollerImage {
		return nil, bourse.FieldOf("min_secrets_version").Err()
	}
	return workload.Review(c)
}

// Timing contains the durations in a Server-Timing header, by name.
type Timing map[string]time.Duration
