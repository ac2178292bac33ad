package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// CreateMachine is the body of a request to create a machine, and of a request for quotes. Bourse has added Deadline,
// Race, FirstTry and Reservation.
type CreateMachine struct {
	Name                    string         `json:"name,omitempty"`
	Region                  string         `json:"region,omitempty"` // an expression; default "any"
	Config                  *bourse.Config `json:"config"`
	SkipLaunch              bool           `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool           `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64          `json:"lease_ttl,omitempty"`           // seconds
	SkipSecrets             bool           `json:"skip_secrets,omitempty"`        // the machine receives none of its app's secrets
	MinSecretsVersion       uint64         `json:"min_secrets_version,omitempty"` // minimum version of the app's secrets that the machine must have

	Deadline bourse.Duration `json:"deadline,omitempty"`  // for the whole order; default 10 s
	Race     int             `json:"race,omitempty"`      // number of workers to claim at the same time; the first one that starts the machine wins
	FirstTry bool            `json:"first_try,omitempty"` // the order's ID was chosen by the client and has never been sent before
	// Reservation is the reservation that provides the capacity. Only workers with a hold for it are asked. It
	// excludes SkipLaunch and Race.
	Reservation bourse.ReservationID `json:"reservation,omitempty"`
}

// UpdateMachine is the body of a request to update a machine to a new version.
type UpdateMachine struct {
	Config                  *bourse.Config    `json:"config"`                    // the complete config: omitted fields are removed
	Name                    string            `json:"name,omitempty"`            // must be the machine's name if set
	Region                  string            `json:"region,omitempty"`          // must be the machine's region if set
	CurrentVersion          bourse.InstanceID `json:"current_version,omitempty"` // conflict if the machine has another version
	SkipLaunch              bool              `json:"skip_launch,omitempty"`     // do not start the new version
	SkipServiceRegistration bool              `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64             `json:"lease_ttl,omitempty"`           // seconds: takes or extends the lease
	SkipSecrets             bool              `json:"skip_secrets,omitempty"`        // the machine receives none of its app's secrets
	MinSecretsVersion       uint64            `json:"min_secrets_version,omitempty"` // minimum version of the app's secrets that the machine must have; it is restarted if necessary
}

// Version is one version of a machine, with the config with which it was created.
type Version struct {
	Version bourse.InstanceID `json:"version"`
	Config  *bourse.Config    `json:"user_config"`
}

// Created is a new machine with the data about its order from the reply's headers.
type Created struct {
	Machine
	Timing Timing `json:"timing,omitempty"`
}

// Quoted is the decision that an order would have, with warnings about ignored fields.
type Quoted struct {
	bourse.Decision
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// Review reviews the request's config as [workload.Review] does.
func (c *CreateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(c.MinSecretsVersion, c.Config)
}

// Review reviews the request's config as [workload.Review] does.
func (u *UpdateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(u.MinSecretsVersion, u.Config)
}

func reviewWith(minSecrets uint64, c *bourse.Config) ([]bourse.Warning, error) {
	if minSecrets > 0 && c.ImageKind() == bourse.PollerImage {
		return nil, bourse.FieldOf("min_secrets_version").Err()
	}
	return workload.Review(c)
}

// Timing contains the durations in a Server-Timing header.
type Timing map[string]time.Duration
