package bourse

import "time"

// Order is a request for one machine, one volume, one task, or capacity to be held.
type Order struct {
	ID      OrderID      `json:"id"`
	App     App          `json:"app"`              // the worker that fills the order stores the app's record too
	Name    string       `json:"name,omitempty"`   // of the machine; "" lets the worker choose one
	Regions []Choice     `json:"regions"`          // in order of preference
	Config  Config       `json:"config"`           // normalized; of a machine
	Volume  *VolumeOrder `json:"volume,omitempty"` // set for an order of a volume, whose Config is empty
	Task    *TaskOrder   `json:"task,omitempty"`   // set for a task; a warm task's Config contains only requirements
	Hold    *HoldOrder   `json:"hold,omitempty"`   // set for an order of capacity to be held
	// Reservation is the reservation whose capacity the machine takes over. Only workers
	// that hold capacity for it fill the order.
	Reservation ReservationID `json:"reservation,omitempty"`
	// AppKeys decrypt the app's secrets. They are sent with the claim and not with the
	// order, because workers that are only asked for a quote receive the order too.
	AppKeys AppKeys `json:"-"`
	Options
}

// Options are the caller's options for an order.
type Options struct {
	SkipLaunch  bool     `json:"skip_launch,omitempty"`  // prepare, do not start
	Cordoned    bool     `json:"cordoned,omitempty"`     // no service registration
	Secrets     uint64   `json:"secrets,omitempty"`      // lowest version of the app's secrets that its machine must have
	SkipSecrets bool     `json:"skip_secrets,omitempty"` // its machine gets none
	LeaseTTL    int64    `json:"lease_ttl,omitempty"`    // seconds; if positive, the machine is created with a lease
	LeaseOwner  string   `json:"lease_owner,omitempty"`
	Race        int      `json:"race,omitempty"`   // number of workers to claim at once, keeping the first machine that starts; 0 and 1 mean no race
	Within      Duration `json:"within,omitempty"` // deadline, counted from the broker's receipt; default 10 s
	Named       bool     `json:"named,omitempty"`  // the caller chose the order's id, so this may be a repetition
	First       bool     `json:"-"`                // the caller states that it has never sent the id before; not sent to workers
	Try         string   `json:"try,omitempty"`    // identifies one attempt at a Named order; chosen by the exchange
	Chosen      OrderID  `json:"-"`                // the id that the caller chose, if it differs from ID; see [OrderID.In]
}

// MayRepeat reports whether the order may have been sent before, and filled.
func (o *Options) MayRepeat() bool { return o.Named && !o.First }

// Bounds and defaults of an order's options.
const (
	DefaultWithin     = 10 * time.Second
	DefaultPullWithin = time.Minute // of a task whose image may have to be pulled
	MaxWithin         = 5 * time.Minute
	MaxRace           = 8
	MaxLeaseTTL       = 24 * 3600

	taskSlack = 2 * time.Second // so that a worker can report a task's timeout
)

// Validate returns CodeInvalid for an order that no worker could fill. The config must
// have been normalized.
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
	case o.Kind() == "":
		return Errorf(CodeInvalid, "an order is for one of a volume, a task, and capacity to be held")
	case o.Kind() != KindVolume && !o.Warm() && o.Config.Guest == nil:
		return Errorf(CodeInvalid, "the order's config has no guest")
	}
	for _, choice := range o.Regions {
		for _, r := range choice {
			if err := r.Validate(); err != nil {
				return err
			}
		}
	}
	if err := o.validateReservation(); err != nil {
		return err
	}
	switch o.Kind() {
	case KindVolume:
		return o.Volume.Validate()
	case KindTask:
		return o.validateTask()
	case KindHold:
		held := o.Config.programmed()
		return held.validate()
	case KindMachine:
	}
	return o.Config.validate()
}

func (o *Order) validateTask() error {
	if err := o.Task.Validate(); err != nil {
		return err
	}
	c := &o.Config
	switch {
	case o.SkipLaunch || o.LeaseTTL != 0 || o.Race > 1:
		return Errorf(CodeInvalid, "a task is neither prepared, nor leased, nor raced")
	case o.Task.Warm() && (c.Image != "" || o.Name != ""):
		return Errorf(CodeInvalid, "a task has either a name or an image")
	case o.Task.Warm():
		return c.Requirements.Validate()
	case c.ImageKind() == PollerImage:
		return Errorf(CodeInvalid, "a poller gives no task its payload: use another image, or POST /sched/submit at its gateway")
	case c.RestartPolicy().Policy != RestartNo || !c.AutoDestroy || c.Init.TTY || c.Task != nil:
		return Errorf(CodeInvalid, "a task's machine is destroyed when it ends, has no terminal and is warm for no other")
	}
	return c.validate()
}

// Warm reports whether the order is for a slot on a warm machine.
func (o *Order) Warm() bool { return o.Task != nil && o.Task.Warm() }

// Asked returns the order in the form that workers receive when they are asked for a
// quote: without its program, environment and payload.
func (o *Order) Asked() *Order {
	asked := *o
	asked.AppKeys = nil
	asked.Config = o.Config.asked()
	if o.Task != nil {
		task := *o.Task
		task.Payload, task.Output = nil, nil
		asked.Task = &task
	}
	return &asked
}

// Deadline returns the time that the order may take, with its default.
func (o *Order) Deadline() time.Duration {
	if o.Within > 0 {
		return time.Duration(o.Within)
	}
	start := DefaultWithin
	if o.Config.ImageKind() == RegistryImage {
		start = DefaultPullWithin
	}
	switch o.Kind() {
	case KindTask:
		if o.Warm() {
			start = taskSlack
		}
		return time.Duration(o.Task.Timeout) + start
	case KindMachine:
		if o.Config.ImageKind() == RegistryImage {
			return MaxWithin // most clients cannot request more, and a large image takes long to pull
		}
		return start
	case KindVolume, KindHold:
	}
	return DefaultWithin
}

// Pinned returns the tag of the only worker that can fill the order, the one with the
// volume that it mounts, or 0 if any worker can.
func (o *Order) Pinned() WorkerTag {
	for _, m := range o.Config.Mounts {
		return m.Volume.Tag()
	}
	return 0
}

// Quote is one worker's answer to an order. If Refusal is nil, the worker is willing, and
// the other fields are used to rank it. A quote holds no capacity.
type Quote struct {
	Worker       WorkerID  `json:"worker"`
	Region       Region    `json:"region"`
	Refusal      *Refusal  `json:"refusal,omitempty"`
	Accounts     []Account `json:"accounts,omitempty"`      // before the fill; sorted by resource
	Takes        Amounts   `json:"takes,omitempty"`         // what the order would take there
	MissingBytes int64     `json:"missing_bytes,omitempty"` // of the image, to be pulled first
	AppMachines  int       `json:"app_machines,omitempty"`  // living machines of the order's app there
	Load         float64   `json:"load,omitempty"`          // runnable tasks per core, 1 minute average
	Filled       *Machine  `json:"filled,omitempty"`        // set if the worker has already filled the order
	FilledVolume *Volume   `json:"filled_volume,omitempty"` // the same for an order of a volume
	// FilledTask is the same for a task, without its answer: another claim waits for the
	// task and returns the answer.
	FilledTask *TaskResult `json:"filled_task,omitempty"`
	FilledHold *Hold       `json:"filled_hold,omitempty"` // the same for an order of capacity
	Held       bool        `json:"held,omitempty"`        // everything that it takes is held here for its reservation
}

// RefusalReason is the reason for which a worker refuses an order.
type RefusalReason string

// The reasons of refusals.
const (
	RefusedResource    RefusalReason = "resource"    // too little of Resource is free
	RefusedLabel       RefusalReason = "label"       // a label has another value
	RefusedUnknown     RefusalReason = "unknown"     // the worker has no such label, countable or GPU kind
	RefusedImage       RefusalReason = "image"       // the worker has no driver for this image, or may not run it
	RefusedNoImage     RefusalReason = "no_image"    // the registry has no such image, or denies access: no other worker needs to ask
	RefusedRegistry    RefusalReason = "registry"    // the worker could not pull the image; another one may
	RefusedRegion      RefusalReason = "region"      // the worker is in another region
	RefusedName        RefusalReason = "name"        // a machine of the app has this name already
	RefusedCanceled    RefusalReason = "canceled"    // the order was canceled before
	RefusedVolume      RefusalReason = "volume"      // the volume to mount is missing, in use, or not ready
	RefusedZone        RefusalReason = "zone"        // the worker has such a volume already
	RefusedUnavailable RefusalReason = "unavailable" // the worker is draining, or its disk is full
	RefusedCordoned    RefusalReason = "cordoned"    // an operator has cordoned the worker
	RefusedReservation RefusalReason = "reservation" // the worker no longer holds capacity for the order's reservation
	RefusedProgram     RefusalReason = "program"     // the program of the order cannot be started
	RefusedDriver      RefusalReason = "driver"      // the driver could not start the program
	RefusedApp         RefusalReason = "app"         // the app was deleted, or another one was created with its name
	RefusedOvertaken   RefusalReason = "overtaken"   // a later attempt at the order has reached the worker
	RefusedNoAnswer    RefusalReason = "no_answer"   // the worker did not answer before the quote deadline
	RefusedLost        RefusalReason = "lost_answer" // the answer to the claim was lost, and the order was canceled there
)

// RefusalReasons returns all reasons. A worker of another release may send others.
func RefusalReasons() []RefusalReason {
	return []RefusalReason{
		RefusedResource, RefusedLabel, RefusedUnknown, RefusedImage, RefusedNoImage, RefusedRegistry, RefusedProgram, RefusedRegion, RefusedName, RefusedCanceled, RefusedVolume,
		RefusedZone, RefusedUnavailable, RefusedCordoned, RefusedReservation, RefusedDriver, RefusedApp, RefusedOvertaken, RefusedNoAnswer, RefusedLost,
	}
}

// Refusal describes why a worker refuses an order.
type Refusal struct {
	Worker   WorkerID      `json:"worker"`
	Region   Region        `json:"region"`
	Reason   RefusalReason `json:"reason"`
	Resource string        `json:"resource,omitempty"` // name of the resource, or of the label
	Wanted   int64         `json:"wanted,omitempty"`   // of Resource, in its unit
	Free     int64         `json:"free,omitempty"`
	Detail   string        `json:"detail"` // the reason as text
	// Also lists the other resources that are short.
	Also []Shortage `json:"also,omitempty"`
}

// Shortage is a resource of which too little is free for an order.
type Shortage struct {
	Resource string `json:"resource"`
	Wanted   int64  `json:"wanted"` // in its unit
	Free     int64  `json:"free"`
}

// Shortages splits r into one refusal for each resource.
func (r Refusal) Shortages() []Refusal {
	out := []Refusal{r}
	out[0].Also = nil
	for _, s := range r.Also {
		out = append(out, Refusal{
			Worker: r.Worker, Region: r.Region, Reason: RefusedResource, Resource: s.Resource, Wanted: s.Wanted, Free: s.Free,
			Detail: "insufficient " + s.Resource,
		})
	}
	return out
}

// Claim is a request that a worker fill an order. It contains the decision, which the
// worker stores with the machine.
type Claim struct {
	Order    Order    `json:"order"`
	AppKeys  AppKeys  `json:"app_keys,omitempty"` // decrypt the secrets of the order's app; empty if its broker has no keys
	Decision Decision `json:"decision,omitzero"`  // empty for a task
	// Placement is the broker's signed [Placement] of the order on this worker.
	Placement []byte `json:"placement,omitempty"`
}

// Fill is the result of a successful claim.
type Fill struct {
	Machine Machine       `json:"machine,omitzero"` // zero if the order is for something else
	Volume  *Volume       `json:"volume,omitempty"` // of an order for one
	Task    *TaskResult   `json:"task,omitempty"`   // of an order for one, once it has ended
	Hold    *Hold         `json:"hold,omitempty"`   // of an order for capacity
	Claimed time.Duration `json:"claimed"`          // until the machine was durably recorded
	Started time.Duration `json:"started"`          // from then until it had started
	Again   bool          `json:"again,omitempty"`  // the order had been filled before
}

// Sale identifies a fill of any kind.
type Sale struct {
	Order  OrderID
	Worker WorkerID
	Region Region
	At     time.Time // when it was recorded, by its worker's clock
}

// Sale returns the identification of f.
func (f *Fill) Sale() Sale {
	switch f.Kind() {
	case KindVolume:
		return Sale{f.Volume.Order, f.Volume.Worker, f.Volume.Region, f.Volume.CreatedAt}
	case KindTask:
		return Sale{f.Task.Order, f.Task.Worker, f.Task.Region, f.Task.StartedAt}
	case KindHold:
		return Sale{f.Hold.Order, f.Hold.Worker, f.Hold.Region, f.Hold.CreatedAt}
	case KindMachine:
	}
	m := &f.Machine
	return Sale{m.Order, m.Worker, m.Region, m.CreatedAt}
}

// Fill returns the fill if the quote's worker has already filled the order, and nil
// otherwise.
func (q *Quote) Fill() *Fill {
	switch {
	case q.Filled != nil:
		return &Fill{Machine: *q.Filled, Again: true}
	case q.FilledVolume != nil:
		return &Fill{Volume: q.FilledVolume, Again: true}
	case q.FilledTask != nil:
		return &Fill{Task: q.FilledTask, Again: true}
	case q.FilledHold != nil:
		return &Fill{Hold: q.FilledHold, Again: true}
	}
	return nil
}

// Cancellation is a worker's answer to the cancellation of an order. No later claim of
// the order succeeds there, and a machine that filled it is being destroyed.
type Cancellation struct {
	Machine MachineID `json:"machine,omitempty"` // destroyed, if there was one
	Volume  VolumeID  `json:"volume,omitempty"`  // the same for an order of a volume
}

// Kind says what an order is for, and what filled it.
type Kind string

// The kinds of orders.
const (
	KindMachine Kind = "machine" // what Config says
	KindVolume  Kind = "volume"  // what Volume says
	KindTask    Kind = "task"    // work: of a machine that is warm, or of one that lives for it (see [Order.Warm])
	KindHold    Kind = "hold"    // capacity for what Config says
)

// kindOf returns the kind of an order or fill from the parts that are set, or "" if more than one is set.
func kindOf(volume, task, hold bool) Kind {
	switch {
	case volume && !task && !hold:
		return KindVolume
	case task && !volume && !hold:
		return KindTask
	case hold && !volume && !task:
		return KindHold
	case !volume && !task && !hold:
		return KindMachine
	}
	return ""
}

// Kind returns the order's kind, or "" if the order combines several kinds; no worker
// can fill such an order.
func (o *Order) Kind() Kind { return kindOf(o.Volume != nil, o.Task != nil, o.Hold != nil) }

// Kind returns the fill's kind, or "" if the fill combines several kinds.
func (f *Fill) Kind() Kind { return kindOf(f.Volume != nil, f.Task != nil, f.Hold != nil) }

// Outcome is the outcome of an order.
type Outcome string

// The outcomes of orders.
const (
	OutcomeFilled   Outcome = "filled"
	OutcomeRefused  Outcome = "refused"
	OutcomeCanceled Outcome = "canceled" // the caller disconnected
	OutcomeTimeout  Outcome = "timeout"  // its deadline passed
	OutcomeQuoted   Outcome = "quoted"   // only quotes were requested
)

// Decision records how an order was decided: the workers that were asked, their refusals,
// the ranking of the others, and the claims. The broker that decided keeps it temporarily.
// The worker that filled the order stores it with the machine, without the final claim
// and without times.
type Decision struct {
	Order   OrderID   `json:"order"`
	Chosen  OrderID   `json:"chosen,omitempty"` // the id that its caller chose, if it differs
	App     AppName   `json:"app"`
	AppID   string    `json:"app_id,omitempty"` // see [App.Owns]
	Regions []Choice  `json:"regions"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	Worker  WorkerID  `json:"worker,omitempty"`  // that filled it
	Machine MachineID `json:"machine,omitempty"` // that was created
	Volume  VolumeID  `json:"volume,omitempty"`  // the same for an order of a volume
	Rounds  []Round   `json:"rounds,omitempty"`
	Times   Times     `json:"times"`
	Message string    `json:"message,omitempty"` // the error that the caller received
}

// Round is one round of quotes: from one choice of regions, or from the rest of a large
// region after its sample refused. If each worker has recently quoted a similar order, no
// worker is asked, and those quotes are ranked together with the claims made since.
type Round struct {
	Regions    Choice        `json:"regions"`
	Candidates int           `json:"candidates"`         // workers known in those regions
	Asked      int           `json:"asked"`              // of them
	Standing   time.Duration `json:"standing,omitempty"` // age of the oldest quote, if no worker was asked
	Ranked     []Ranking     `json:"ranked,omitempty"`   // best first; at most MaxRecorded
	Refusals   []Refusal     `json:"refusals,omitempty"` // of quotes; at most MaxRecorded
	Claims     []ClaimTry    `json:"claims,omitempty"`
}

// MaxRecorded bounds each list of a Round in a stored Decision.
const MaxRecorded = 64

// Ranking is one willing worker's rank, with each part of its score. Scores are from 0
// (worst) to 1 (best) and weighted; Score is their sum.
type Ranking struct {
	Worker WorkerID    `json:"worker"`
	Region Region      `json:"region"`
	Score  float64     `json:"score"`
	Parts  []ScorePart `json:"parts,omitempty"`
}

// ScorePart is one curve's contribution to a Ranking.
type ScorePart struct {
	Name  string  `json:"name"`  // a resource, "image", "spread" or "load"
	Value float64 `json:"value"` // input of the curve
	Score float64 `json:"score"` // the curve's value times its weight
}

// ClaimTry is one claim and its result.
type ClaimTry struct {
	Worker  WorkerID      `json:"worker"`
	Refusal *Refusal      `json:"refusal,omitempty"` // nil: it filled the order
	Took    time.Duration `json:"took"`
}

// Times contains the durations of an order's phases, in the order of Server-Timing.
type Times struct {
	Quote time.Duration `json:"quote"`
	Rank  time.Duration `json:"rank"`
	Claim time.Duration `json:"claim"`
	Start time.Duration `json:"start"`
	Total time.Duration `json:"total"`
}

// Refusals returns all refusals of the decision, of quotes and of claims.
func (d *Decision) Refusals() []Refusal {
	var out []Refusal
	for _, r := range d.Rounds {
		out = append(out, r.Refusals...)
		for _, c := range r.Claims {
			if c.Refusal != nil {
				out = append(out, *c.Refusal)
			}
		}
	}
	return out
}
