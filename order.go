package bourse

import "time"

// Order is a request for one machine, for one volume, for work to be done, or
// for capacity to be held.
type Order struct {
	ID      OrderID      `json:"id"`
	App     App          `json:"app"`              // the worker that fills it keeps the app's record too
	Name    string       `json:"name,omitempty"`   // of the machine; the worker makes one up when empty
	Regions []Choice     `json:"regions"`          // in order of preference
	Config  Config       `json:"config"`           // normalized; of a machine
	Volume  *VolumeOrder `json:"volume,omitempty"` // set: the order is for a volume, and Config is empty
	Task    *TaskOrder   `json:"task,omitempty"`   // set: the order is for work; of Config a warm task has requirements only
	Hold    *HoldOrder   `json:"hold,omitempty"`   // set: the order is for capacity to be held
	// Reservation is what a machine's capacity comes from: only workers that
	// hold for it fill the order.
	Reservation ReservationID `json:"reservation,omitempty"`
	// AppKeys decrypt the app's secrets. The claim carries them, and not the order: that
	// is shown to workers which are only asked for a quote.
	AppKeys AppKeys `json:"-"`
	Options
}

// Options are what the caller says about an order beside the machine.
type Options struct {
	SkipLaunch  bool     `json:"skip_launch,omitempty"`  // prepare, do not start
	Cordoned    bool     `json:"cordoned,omitempty"`     // no service registration
	Secrets     uint64   `json:"secrets,omitempty"`      // version of the app's that its machine must have, at least
	SkipSecrets bool     `json:"skip_secrets,omitempty"` // its machine gets none
	LeaseTTL    int64    `json:"lease_ttl,omitempty"`    // seconds; born leased when positive
	LeaseOwner  string   `json:"lease_owner,omitempty"`
	Race        int      `json:"race,omitempty"`   // claim so many, keep the first that starts; 0 and 1 mean no race
	Within      Duration `json:"within,omitempty"` // deadline, counted from the broker's receipt; default 10 s
	Named       bool     `json:"named,omitempty"`  // the caller chose the order's id, so this may be a repetition
	First       bool     `json:"-"`                // the caller says that it is none: the id was never sent before. Of no use to workers
	Try         string   `json:"try,omitempty"`    // of an order that is Named: which of its tries this is, made up by the exchange
	Chosen      OrderID  `json:"-"`                // what the caller called it, if its id is another one; see [OrderID.In]
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

	taskSlack = 2 * time.Second // so that a worker that ends a task in time can say so
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

// Warm reports whether the order is for a place on a machine that is warm.
func (o *Order) Warm() bool { return o.Task != nil && o.Task.Warm() }

// Asked returns the order as workers are asked for quotes: what its program is,
// what it is told, and the payload of a task are not their business yet.
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

// Deadline returns how long the order may take, default included.
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
			return MaxWithin // most clients have no way to ask for more, and a large image takes its time
		}
		return start
	case KindVolume, KindHold:
	}
	return DefaultWithin
}

// Pinned returns the tag of the only worker that can fill the order: that of the
// volume it mounts; 0 when any can.
func (o *Order) Pinned() WorkerTag {
	for _, m := range o.Config.Mounts {
		return m.Volume.Tag()
	}
	return 0
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
	FilledVolume *Volume   `json:"filled_volume,omitempty"` // the same, of an order for a volume
	// FilledTask is the same of a task, without its answer: another claim there
	// waits for its end and gives it.
	FilledTask *TaskResult `json:"filled_task,omitempty"`
	FilledHold *Hold       `json:"filled_hold,omitempty"` // the same, of an order for capacity
	Held       bool        `json:"held,omitempty"`        // all that it takes is held here for its reservation
}

// RefusalReason says in one word why a worker cannot fill an order.
type RefusalReason string

// The reasons of refusals.
const (
	RefusedResource    RefusalReason = "resource"    // too little of Resource is free
	RefusedLabel       RefusalReason = "label"       // a label has another value
	RefusedUnknown     RefusalReason = "unknown"     // the worker knows no such label, countable or gpu kind
	RefusedImage       RefusalReason = "image"       // no driver of the worker runs this image, or it is not one that it may run
	RefusedNoImage     RefusalReason = "no_image"    // its registry has no such image, or does not show it: no other worker need ask
	RefusedRegistry    RefusalReason = "registry"    // the worker could not pull the image; another one may
	RefusedRegion      RefusalReason = "region"      // the worker stands in another region
	RefusedName        RefusalReason = "name"        // a machine of the app has this name already
	RefusedCanceled    RefusalReason = "canceled"    // the order's cancellation came first
	RefusedVolume      RefusalReason = "volume"      // the volume to mount is not there, in use, or not ready
	RefusedZone        RefusalReason = "zone"        // the worker has such a volume already
	RefusedUnavailable RefusalReason = "unavailable" // the worker is draining, or its disk is full
	RefusedCordoned    RefusalReason = "cordoned"    // an operator has it take no more orders
	RefusedReservation RefusalReason = "reservation" // the worker holds nothing for the order's reservation any more
	RefusedProgram     RefusalReason = "program"     // the program cannot be started as it was ordered
	RefusedDriver      RefusalReason = "driver"      // the driver could not start the program
	RefusedApp         RefusalReason = "app"         // the app was deleted, or another one was made of its name
	RefusedOvertaken   RefusalReason = "overtaken"   // another try of the order has asked here since
	RefusedNoAnswer    RefusalReason = "no_answer"   // asked, and silent until the quote deadline
	RefusedLost        RefusalReason = "lost_answer" // claimed, and the answer was lost; canceled there
)

// RefusalReasons lists every reason. A worker of another release may send one that
// is not among them.
func RefusalReasons() []RefusalReason {
	return []RefusalReason{
		RefusedResource, RefusedLabel, RefusedUnknown, RefusedImage, RefusedNoImage, RefusedRegistry, RefusedProgram, RefusedRegion, RefusedName, RefusedCanceled, RefusedVolume,
		RefusedZone, RefusedUnavailable, RefusedCordoned, RefusedReservation, RefusedDriver, RefusedApp, RefusedOvertaken, RefusedNoAnswer, RefusedLost,
	}
}

// Refusal is a worker's typed no.
type Refusal struct {
	Worker   WorkerID      `json:"worker"`
	Region   Region        `json:"region"`
	Reason   RefusalReason `json:"reason"`
	Resource string        `json:"resource,omitempty"` // or the label's name
	Wanted   int64         `json:"wanted,omitempty"`   // of Resource, in its unit
	Free     int64         `json:"free,omitempty"`
	Detail   string        `json:"detail"` // a sentence for people
	// Also are the other resources of which there is too little here, or none.
	Also []Shortage `json:"also,omitempty"`
}

// Shortage is a resource of which there is too little for an order.
type Shortage struct {
	Resource string `json:"resource"`
	Wanted   int64  `json:"wanted"` // in its unit
	Free     int64  `json:"free"`
}

// Shortages returns one refusal for each resource that r names, of the others
// as if it were the only one.
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

// Claim asks a worker to fill an order, and tells it how the decision came
// about; the worker keeps that with the machine.
type Claim struct {
	Order    Order    `json:"order"`
	AppKeys  AppKeys  `json:"app_keys,omitempty"` // open the secrets of the order's app; empty: its broker has no keys
	Decision Decision `json:"decision,omitzero"`  // none of an order for work
	// Placement is the broker's signed [Placement] of the order on this worker.
	Placement []byte `json:"placement,omitempty"`
}

// Fill is a worker's yes to a claim.
type Fill struct {
	Machine Machine       `json:"machine,omitzero"` // zero when the order is for something else
	Volume  *Volume       `json:"volume,omitempty"` // of an order for one
	Task    *TaskResult   `json:"task,omitempty"`   // of an order for one, once it has ended
	Hold    *Hold         `json:"hold,omitempty"`   // of an order for capacity
	Claimed time.Duration `json:"claimed"`          // until the machine was durably recorded
	Started time.Duration `json:"started"`          // from then until it had started
	Again   bool          `json:"again,omitempty"`  // the order had been filled before
}

// Sale is what a fill is known by, whatever was filled.
type Sale struct {
	Order  OrderID
	Worker WorkerID
	Region Region
	At     time.Time // when it was recorded, by its worker's clock
}

// Sale returns what f is known by.
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

// Fill returns the fill of an order that was filled by the quote's worker
// before, nil if it was not.
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

// Cancellation is a worker's answer to the cancelling of an order: from now
// on no claim of it succeeds there, and a machine that filled it is being
// destroyed.
type Cancellation struct {
	Machine MachineID `json:"machine,omitempty"` // destroyed, if there was one
	Volume  VolumeID  `json:"volume,omitempty"`  // the same, of an order for a volume
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

// kindOf returns the kind of what has these parts, "" for more than one of them.
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

// Kind returns what the order is for, "" for one that no worker could fill
// because it is for several things.
func (o *Order) Kind() Kind { return kindOf(o.Volume != nil, o.Task != nil, o.Hold != nil) }

// Kind returns what the fill is of, "" for one that is of several things.
func (f *Fill) Kind() Kind { return kindOf(f.Volume != nil, f.Task != nil, f.Hold != nil) }

// Outcome is how an order ended.
type Outcome string

// The outcomes. An order has no other end, and none that waits.
const (
	OutcomeFilled   Outcome = "filled"
	OutcomeRefused  Outcome = "refused"
	OutcomeCanceled Outcome = "canceled" // the caller left
	OutcomeTimeout  Outcome = "timeout"  // its deadline passed
	OutcomeQuoted   Outcome = "quoted"   // only quotes were asked for
)

// Decision is the record of how an order was decided: who was asked, who said
// no and why, how the rest was ranked, which claims were made. For a while the
// broker that decided has it. The worker that filled the order keeps it with
// the machine, as it stood when the claim was made: without that claim and
// without times.
type Decision struct {
	Order   OrderID   `json:"order"`
	Chosen  OrderID   `json:"chosen,omitempty"` // what its caller called it, if that is another id
	App     AppName   `json:"app"`
	AppID   string    `json:"app_id,omitempty"` // see [App.Owns]
	Regions []Choice  `json:"regions"`
	At      time.Time `json:"at"`
	Outcome Outcome   `json:"outcome"`
	Worker  WorkerID  `json:"worker,omitempty"`  // that filled it
	Machine MachineID `json:"machine,omitempty"` // that it became
	Volume  VolumeID  `json:"volume,omitempty"`  // the same, of an order for a volume
	Rounds  []Round   `json:"rounds,omitempty"`
	Times   Times     `json:"times"`
	Message string    `json:"message,omitempty"` // of a refusal, as the caller got it
}

// Round is one asking for quotes: of one choice of regions, or of the rest of
// a large region after its sample refused. When each worker had said yes to an
// order of the same kind just before, no one is asked and those quotes, with
// the claims made since, are ranked instead.
type Round struct {
	Regions    Choice        `json:"regions"`
	Candidates int           `json:"candidates"`         // known in those regions
	Asked      int           `json:"asked"`              // of them
	Standing   time.Duration `json:"standing,omitempty"` // age of the oldest quote, if no one was asked
	Ranked     []Ranking     `json:"ranked,omitempty"`   // best first; at most MaxRecorded
	Refusals   []Refusal     `json:"refusals,omitempty"` // of quotes; at most MaxRecorded
	Claims     []ClaimTry    `json:"claims,omitempty"`
}

// MaxRecorded bounds each list of a Round in a stored Decision.
const MaxRecorded = 64

// Ranking is one willing worker's place, with each part of its score. Scores
// are 0 (worst) to 1 (best), already weighted; Score is their sum.
type Ranking struct {
	Worker WorkerID    `json:"worker"`
	Region Region      `json:"region"`
	Score  float64     `json:"score"`
	Parts  []ScorePart `json:"parts,omitempty"`
}

// ScorePart is one curve's contribution to a Ranking.
type ScorePart struct {
	Name  string  `json:"name"`  // a resource, "image", "spread" or "load"
	Value float64 `json:"value"` // what the curve was asked at
	Score float64 `json:"score"` // its answer times its weight
}

// ClaimTry is one claim and what became of it.
type ClaimTry struct {
	Worker  WorkerID      `json:"worker"`
	Refusal *Refusal      `json:"refusal,omitempty"` // nil: it filled the order
	Took    time.Duration `json:"took"`
}

// Times are the parts of an order's life, in the order of Server-Timing.
type Times struct {
	Quote time.Duration `json:"quote"`
	Rank  time.Duration `json:"rank"`
	Claim time.Duration `json:"claim"`
	Start time.Duration `json:"start"`
	Total time.Duration `json:"total"`
}

// Refusals returns every no of the decision, of quotes and of claims.
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
