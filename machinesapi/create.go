package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// CreateMachine is the body of a request for a new machine, and of one for
// quotes. Deadline, Race and Reservation are Bourse's own.
type CreateMachine struct {
	Name                    string         `json:"name,omitempty"`
	Region                  string         `json:"region,omitempty"` // an expression; default "any"
	Config                  *bourse.Config `json:"config"`
	SkipLaunch              bool           `json:"skip_launch,omitempty"`
	SkipServiceRegistration bool           `json:"skip_service_registration,omitempty"`
	LeaseTTL                int64          `json:"lease_ttl,omitempty"` // seconds

	Deadline bourse.Duration `json:"deadline,omitempty"`  // for the whole order; default 10 s
	Race     int             `json:"race,omitempty"`      // claim so many workers, keep the first that starts
	FirstTry bool            `json:"first_try,omitempty"` // the order's id, chosen by the client, was never sent before
	// Reservation is what the machine's capacity comes from: only workers that
	// hold for it are asked. It excludes SkipLaunch and Race.
	Reservation bourse.ReservationID `json:"reservation,omitempty"`
}

// Created is a machine with what the reply's headers have about its order.
type Created struct {
	Machine
	Timing Timing `json:"timing,omitempty"`
}

// Timing is a Server-Timing header: how long each part took.
type Timing map[string]time.Duration
