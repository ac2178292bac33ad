package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// CreateMachine is the body of a request for a new machine, and of one for
// quotes. Deadline, Race and Reservation are Bourse's own.
type CreateMachine struct {
	Name                    string         `json:"name,omitempty"`
	Region                  string         `json:"region,omitempty"` // an expression; default "any"
	Config                  *bourse.Config `json:"config"`
	SkipLaunch              bool           `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool           `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64          `json:"lease_ttl,omitempty"`           // seconds
	SkipSecrets             bool           `json:"skip_secrets,omitempty"`        // the machine gets none of its app's
	MinSecretsVersion       uint64         `json:"min_secrets_version,omitempty"` // of the app's, that the machine must have

	Deadline bourse.Duration `json:"deadline,omitempty"`  // for the whole order; default 10 s
	Race     int             `json:"race,omitempty"`      // claim so many workers, keep the first that starts
	FirstTry bool            `json:"first_try,omitempty"` // the order's id, chosen by the client, was never sent before
	// Reservation is what the machine's capacity comes from: only workers that
	// hold for it are asked. It excludes SkipLaunch and Race.
	Reservation bourse.ReservationID `json:"reservation,omitempty"`
}

// UpdateMachine is the body of a request for a new version of a machine.
type UpdateMachine struct {
	Config                  *bourse.Config    `json:"config"`                    // all of it: what is left out is gone
	Name                    string            `json:"name,omitempty"`            // refused unless it is the machine's
	Region                  string            `json:"region,omitempty"`          // likewise
	CurrentVersion          bourse.InstanceID `json:"current_version,omitempty"` // conflict when the machine has another
	SkipLaunch              bool              `json:"skip_launch,omitempty"`     // the new version is not started
	SkipServiceRegistration bool              `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64             `json:"lease_ttl,omitempty"`           // seconds: takes or extends the lease
	SkipSecrets             bool              `json:"skip_secrets,omitempty"`        // the machine gets none of its app's
	MinSecretsVersion       uint64            `json:"min_secrets_version,omitempty"` // of the app's, that the machine must have: it starts again for it
}

// Version is one version of a machine, with the config that it was made with.
type Version struct {
	Version bourse.InstanceID `json:"version"`
	Config  *bourse.Config    `json:"user_config"`
}

// Created is a machine with what the reply's headers have about its order.
type Created struct {
	Machine
	Timing Timing `json:"timing,omitempty"`
}

// Quoted is the decision that an order would have, with what of it would not be
// acted on.
type Quoted struct {
	bourse.Decision
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// Review reviews the request as [workload.Review] does its config.
func (c *CreateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(c.MinSecretsVersion, c.Config)
}

// Review reviews the request as [workload.Review] does its config.
func (u *UpdateMachine) Review() ([]bourse.Warning, error) {
	return reviewWith(u.MinSecretsVersion, u.Config)
}

func reviewWith(minSecrets uint64, c *bourse.Config) ([]bourse.Warning, error) {
	if minSecrets > 0 && c.ImageKind() == bourse.PollerImage {
		return nil, bourse.FieldOf("min_secrets_version").Err()
	}
	return workload.Review(c)
}

// Timing is a Server-Timing header: how long each part took.
type Timing map[string]time.Duration
