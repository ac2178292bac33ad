package bourse

import "time"

// Order is a request for one machine.
type Order struct {
	ID      OrderID  `json:"id"`
	App     App      `json:"app"`            // the worker that fills it keeps the app's record too
	Name    string   `json:"name,omitempty"` // of the machine; the worker makes one up when empty
	Regions []Choice `json:"regions"`        // in order of preference
	Config  Config   `json:"config"`         // normalized
	Options
}

// Options are what the caller says about an order beside the machine.
type Options struct {
	SkipLaunch bool     `json:"skip_launch,omitempty"` // prepare, do not start
	Cordoned   bool     `json:"cordoned,omitempty"`    // no service registration
	LeaseTTL   int64    `json:"lease_ttl,omitempty"`   // seconds; born leased when positive
	LeaseOwner string   `json:"lease_owner,omitempty"`
	Race       int      `json:"race,omitempty"`   // claim so many, keep the first that starts; 0 and 1 mean no race
	Within     Duration `json:"within,omitempty"` // deadline, counted from the broker's receipt; default 10 s
	Named      bool     `json:"named,omitempty"`  // the caller chose the order's id, so this may be a repetition
}

// Bounds and defaults of an order's options.
const (
	DefaultWithin = 10 * time.Second
	MaxWithin     = 5 * time.Minute
	MaxRace       = 8
	MaxLeaseTTL   = 24 * 3600
)

// Validate reports CodeInvalid for an order that no worker could fill. The
// config must have been normalized.
func (o *Order) Validate() error {
	if err := o.ID.Validate(); err != nil {
		return err
	}
	if err := o.App.Name.Validate(); err != nil {
		return err
	}
	if o.Name != "" {
		if err := ValidateMachineName(o.Name); err != nil {
			return err
		}
	}
	switch {
	case len(o.Regions) == 0:
		return Errorf(CodeInvalid, "the order names no region")
	case o.Race < 0 || o.Race > MaxRace:
		return Errorf(CodeInvalid, "invalid race %d: use 0 to %d", o.Race, MaxRace)
	case o.Within < 0 || time.Duration(o.Within) > MaxWithin:
		return Errorf(CodeInvalid, "invalid deadline %s: use up to %s", time.Duration(o.Within), MaxWithin)
	case o.LeaseTTL < 0 || o.LeaseTTL > MaxLeaseTTL:
		return Errorf(CodeInvalid, "invalid lease_ttl %d: use 0 to %d seconds", o.LeaseTTL, MaxLeaseTTL)
	case o.Config.Guest == nil:
		return Errorf(CodeInvalid, "the order's config has no guest")
	}
	for _, choice := range o.Regions {
		for _, r := range choice {
			if err := r.Validate(); err != nil {
				return err
			}
		}
	}
	return o.Config.validate()
}

// Deadline gives how long the order may take, default included.
func (o *Order) Deadline() time.Duration {
	if o.Within > 0 {
		return time.Duration(o.Within)
	}
	return DefaultWithin
}

// Quote is one worker's answer to an order: yes when Refusal is nil, with the
// facts that rank it. A quote holds no capacity.
type Quote struct {
	Worker       WorkerID  `json:"worker"`
	Region       Region    `json:"region"`
	Refusal      *Refusal  `json:"refusal,omitempty"`
	Accounts     []Account `json:"accounts,omitempty"`      // before the fill; sorted by resource
	Takes        Amounts   `json:"takes,omitempty"`         // what the order would take there
	MissingBytes int64     `json:"missing_bytes,omitempty"` // of the image, to be pulled first
	AppMachines  int       `json:"app_machines,omitempty"`  // living machines of the order's app there
	Load         float64   `json:"load,omitempty"`          // runnable tasks per core, 1 minute average
	Filled       *Machine  `json:"filled,omitempty"`        // the order is filled there already
}

// RefusalReason says in one word why a worker cannot fill an order.
type RefusalReason string

// The reasons of refusals.
const (
	RefusedResource    RefusalReason = "resource"    // too little of Resource is free
	RefusedLabel       RefusalReason = "label"       // a label has another value
	RefusedUnknown     RefusalReason = "unknown"     // the worker knows no such label, countable or gpu kind
	RefusedImage       RefusalReason = "image"       // no driver of the worker runs this image
	RefusedRegion      RefusalReason = "region"      // the worker stands in another region
	RefusedName        RefusalReason = "name"        // a machine of the app has this name already
	RefusedCanceled    RefusalReason = "canceled"    // the order's cancellation came first
	RefusedUnavailable RefusalReason = "unavailable" // the worker is draining, or its disk is full
	RefusedDriver      RefusalReason = "driver"      // the driver could not start the program
	RefusedNoAnswer    RefusalReason = "no_answer"   // asked, and silent until the quote deadline
	RefusedLost        RefusalReason = "lost_answer" // claimed, and the answer was lost; canceled there
)

// Refusal is a worker's typed no.
type Refusal struct {
	Worker   WorkerID      `json:"worker"`
	Region   Region        `json:"region"`
	Reason   RefusalReason `json:"reason"`
	Resource string        `json:"resource,omitempty"` // or the label's name
	Wanted   int64         `json:"wanted,omitempty"`   // of Resource, in its unit
	Free     int64         `json:"free,omitempty"`
	Detail   string        `json:"detail"` // a sentence for people
}

// Claim asks a worker to fill an order, and tells it how the decision came
// about; the worker keeps that with the machine.
type Claim struct {
	Order    Order    `json:"order"`
	Decision Decision `json:"decision"`
}

// Fill is a worker's yes to a claim.
type Fill struct {
	Machine Machine       `json:"machine"`
	Claimed time.Duration `json:"claimed"`         // until the machine was durably recorded
	Started time.Duration `json:"started"`         // from then until it had started
	Again   bool          `json:"again,omitempty"` // the order had been filled before
}

// Cancellation is a worker's answer to the cancelling of an order: from now
// on no claim of it succeeds there, and a machine that filled it is being
// destroyed.
type Cancellation struct {
	Machine MachineID `json:"machine,omitempty"` // destroyed, if there was one
}
