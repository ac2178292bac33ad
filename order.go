package bourse

import "time"

// Order requests a machine, a volume, the result of a task, or a hold.
type Order struct {
	ID      OrderID      `json:"id"`
	App     App          `json:"app"`              // the order's app; the worker that fills the order stores the app's record as well
	Name    string       `json:"name,omitempty"`   // name of the machine; "": the worker chooses one
	Regions []Choice     `json:"regions"`          // in order of preference
	Config  Config       `json:"config"`           // normalized config of the machine
	Volume  *VolumeOrder `json:"volume,omitempty"` // set if the order is for a volume; Config is empty then
	Task    *TaskOrder   `json:"task,omitempty"`   // set if the order is for a task; if the task is warm, Config contains only requirements
	Hold    *HoldOrder   `json:"hold,omitempty"`   // set if the order is for capacity that is held
	// Reservation is the reservation whose capacity the machine takes over. Only workers that hold
	// capacity for it can fill the order.
	Reservation ReservationID `json:"reservation,omitempty"`
	// AppKeys contains the keys that decrypt the app's secrets. They are sent separately, in the
	// claim, because requests for quotes also contain the order.
	AppKeys AppKeys `json:"-"`
	Options
}

// Options contains the caller's options for an order.
type Options struct {
	SkipLaunch  bool     `json:"skip_launch,omitempty"`  // prepare the machine, but do not start it
	Cordoned    bool     `json:"cordoned,omitempty"`     // exclude the machine's services from routing
	Secrets     uint64   `json:"secrets,omitempty"`      // minimum version of the app's secrets that the machine must have
	SkipSecrets bool     `json:"skip_secrets,omitempty"` // the machine receives no secrets
	LeaseTTL    int64    `json:"lease_ttl,omitempty"`    // in seconds; if positive, the machine is created with a lease
	LeaseOwner  string   `json:"lease_owner,omitempty"`
	Race        int      `json:"race,omitempty"`          // number of workers to claim at once; the first machine that starts wins; 0 and 1: one worker
	Timeout     Duration `json:"timeout,omitempty"`       // time limit, which begins when the broker receives the order; 0: see [Order.Deadline]
	HasChosenID bool     `json:"has_chosen_id,omitempty"` // the caller has chosen the order's ID, so the order may be a repeated one
	FirstTry    bool     `json:"-"`                       // according to the caller, the ID has never been sent before; not sent to workers
	Try         string   `json:"try,omitempty"`           // identifies one attempt to place an order with HasChosenID; set by the exchange
	ChosenID    OrderID  `json:"-"`                       // the ID that the caller has chosen, if it differs from ID; see [OrderID.In]
}

// MayRepeat reports whether the order may have been sent before, and may therefore be filled
// already.
func (o *Options) MayRepeat() bool { return o.HasChosenID && !o.FirstTry }

// Defaults and limits of an order's options.
const (
	DefaultOrderTimeout = 10 * time.Second
	DefaultPullTimeout  = time.Minute // default for a task whose image may have to be pulled
	MaxOrderTimeout     = 5 * time.Minute
	MaxRace             = 8
	MaxLeaseTTL         = 24 * 3600

	taskSlack = 2 * time.Second // extra time for the worker to report that a task has exceeded its timeout
)

// Validate returns CodeInvalid if no worker could fill the order. The config must have been
// normalized.
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
		return Errorf(CodeInvalid, "the order does not name any regions")
	case o.Race < 0 || o.Race > MaxRace:
		return Errorf(CodeInvalid, "invalid race %d: use 0 to %d", o.Race, MaxRace)
	case o.Timeout < 0 || time.Duration(o.Timeout) > MaxOrderTimeout:
		return Errorf(CodeInvalid, "invalid deadline %s: use up to %s", time.Duration(o.Timeout), MaxOrderTimeout)
	case o.LeaseTTL < 0 || o.LeaseTTL > MaxLeaseTTL:
		return Errorf(CodeInvalid, "invalid lease_ttl %d: use 0 to %d seconds", o.LeaseTTL, MaxLeaseTTL)
	case o.Kind() == "":
		return Errorf(CodeInvalid, "an order can request only one of a volume, a task, and a reservation")
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
		held := o.Config.withProgram()
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
		return Errorf(CodeInvalid, "a task cannot use skip_launch, a lease or a race")
	case o.Task.Warm() && (c.Image != "" || o.Name != ""):
		return Errorf(CodeInvalid, "a task must have either a name or an image, but not both")
	case o.Task.Warm():
		return c.Requirements.Validate()
	case c.ImageKind() == PollerImage:
		return Errorf(CodeInvalid, "a poller cannot run tasks: use another image, or POST /sched/submit at its gateway")
	case c.RestartPolicy().Policy != RestartNo || !c.AutoDestroy || c.Init.TTY || c.Task != nil:
		return Errorf(CodeInvalid, "a task's machine must have auto_destroy and the restart policy no, and cannot have a terminal or config.task")
	}
	return c.validate()
}

// Warm reports whether the order is for a slot on a warm machine.
func (o *Order) Warm() bool { return o.Task != nil && o.Task.Warm() }

// ForQuote returns the copy of the order that is sent to request quotes. It does not contain the
// program, its environment, the payload, or the app's keys.
func (o *Order) ForQuote() *Order {
	asked := *o
	asked.AppKeys = nil
	asked.Config = o.Config.forQuote()
	if o.Task != nil {
		task := *o.Task
		task.Payload, task.Output = nil, nil
		asked.Task = &task
	}
	return &asked
}

// Deadline returns how long the order may take. It returns the default if no time limit is set.
func (o *Order) Deadline() time.Duration {
	if o.Timeout > 0 {
		return time.Duration(o.Timeout)
	}
	start := DefaultOrderTimeout
	if o.Config.ImageKind() == RegistryImage {
		start = DefaultPullTimeout
	}
	switch o.Kind() {
	case KindTask:
		if o.Warm() {
			start = taskSlack
		}
		return time.Duration(o.Task.Timeout) + start
	case KindMachine:
		if o.Config.ImageKind() == RegistryImage {
			return MaxOrderTimeout // most clients cannot request a longer deadline, and pulling a large image takes a long time
		}
		return start
	case KindVolume, KindHold:
	}
	return DefaultOrderTimeout
}

// Pinned returns the tag of the worker that stores the volume that the order mounts. No other
// worker can fill the order. If the order does not mount a volume, Pinned returns 0.
func (o *Order) Pinned() WorkerTag {
	for _, m := range o.Config.Mounts {
		return m.Volume.Tag()
	}
	return 0
}

// Quote is a worker's answer to a request for a quote. If Refusal is nil, the worker is willing,
// and the other fields are used to rank it. A quote does not hold capacity.
type Quote struct {
	Worker       WorkerID  `json:"worker"`
	Region       Region    `json:"region"`
	Refusal      *Refusal  `json:"refusal,omitempty"`
	Accounts     []Account `json:"accounts,omitempty"`      // the worker's accounts before the fill, sorted by resource
	Takes        Amounts   `json:"takes,omitempty"`         // resources that the order would take on this worker
	MissingBytes int64     `json:"missing_bytes,omitempty"` // bytes of the image that have to be pulled first
	AppMachines  int       `json:"app_machines,omitempty"`  // number of machines of the order's app on this worker, excluding destroyed ones
	Load         float64   `json:"load,omitempty"`          // number of runnable tasks per core, averaged over one minute
	Filled       *Machine  `json:"filled,omitempty"`        // the machine, if the worker has already filled the order
	FilledVolume *Volume   `json:"filled_volume,omitempty"` // the volume, if the order is for one and the worker has already filled it
	// FilledTask is the result of the task, if the order is for one and the worker has already
	// filled it. Its Answer is always empty. To get the answer, repeat the claim, which waits for
	// the task to end if necessary.
	FilledTask *TaskResult `json:"filled_task,omitempty"`
	FilledHold *Hold       `json:"filled_hold,omitempty"` // the hold, if the order is for capacity and the worker has already filled it
	Held       bool        `json:"held,omitempty"`        // the worker's hold covers all resources that the order takes
}

// RefusalReason is the reason why a worker refuses an order.
type RefusalReason string

// Reasons for refusals.
const (
	RefusedResource    RefusalReason = "resource"    // too little of the resource is free
	RefusedLabel       RefusalReason = "label"       // the worker's label has another value
	RefusedUnknown     RefusalReason = "unknown"     // the worker has no such label, countable resource or GPU kind
	RefusedImage       RefusalReason = "image"       // the worker has no driver for the image, or may not run it
	RefusedNoImage     RefusalReason = "no_image"    // the registry has no such image or denies access, so no other worker could pull it
	RefusedRegistry    RefusalReason = "registry"    // the worker could not pull the image, but another worker might
	RefusedRegion      RefusalReason = "region"      // the worker is in another region
	RefusedName        RefusalReason = "name"        // the app already has a machine with this name
	RefusedCanceled    RefusalReason = "canceled"    // the order was canceled
	RefusedVolume      RefusalReason = "volume"      // the volume that the machine mounts is missing, in use, or not ready
	RefusedZone        RefusalReason = "zone"        // the worker already has a volume that must not be on the same worker as the new one
	RefusedUnavailable RefusalReason = "unavailable" // the worker is draining, or its disk is full
	RefusedCordoned    RefusalReason = "cordoned"    // an operator has cordoned the worker
	RefusedReservation RefusalReason = "reservation" // the worker no longer holds capacity for the order's reservation
	RefusedProgram     RefusalReason = "program"     // the program of the order cannot be started
	RefusedDriver      RefusalReason = "driver"      // the driver could not start the program
	RefusedApp         RefusalReason = "app"         // the app was deleted, or another app was created with its name
	RefusedSuperseded  RefusalReason = "superseded"  // the worker has already received a later attempt to place the order
	RefusedNoAnswer    RefusalReason = "no_answer"   // the worker did not answer in time
	RefusedLost        RefusalReason = "lost_answer" // the answer to the claim was lost, and the order was canceled on the worker
)

// RefusalReasons returns all reasons. Workers of other releases may send other reasons.
func RefusalReasons() []RefusalReason {
	return []RefusalReason{
		RefusedResource, RefusedLabel, RefusedUnknown, RefusedImage, RefusedNoImage, RefusedRegistry, RefusedProgram, RefusedRegion, RefusedName, RefusedCanceled, RefusedVolume,
		RefusedZone, RefusedUnavailable, RefusedCordoned, RefusedReservation, RefusedDriver, RefusedApp, RefusedSuperseded, RefusedNoAnswer, RefusedLost,
	}
}

// Refusal describes why a worker has refused an order.
type Refusal struct {
	Worker   WorkerID      `json:"worker"`
	Region   Region        `json:"region"`
	Reason   RefusalReason `json:"reason"`
	Resource string        `json:"resource,omitempty"` // name of the resource or the label
	Wanted   int64         `json:"wanted,omitempty"`   // amount that the order needs, in the resource's unit
	Free     int64         `json:"free,omitempty"`
	Detail   string        `json:"detail"` // the reason as text
	// Also lists any other resources that the worker is short of.
	Also []Shortage `json:"also,omitempty"`
}

// Shortage describes a resource that a worker is short of.
type Shortage struct {
	Resource string `json:"resource"`
	Wanted   int64  `json:"wanted"` // in the resource's unit
	Free     int64  `json:"free"`
}

// Shortages splits a refusal into one refusal for each resource that the worker is short of.
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

// Claim asks a worker to fill an order. It contains the broker's decision, which the worker stores
// with the machine.
type Claim struct {
	Order    Order    `json:"order"`
	AppKeys  AppKeys  `json:"app_keys,omitempty"` // keys for the secrets of the order's app; empty if the broker has no keys
	Decision Decision `json:"decision,omitzero"`  // empty for a task
	// Placement is the [Placement] of the order on this worker, signed by the broker.
	Placement []byte `json:"placement,omitempty"`
}

// Fill is the result of a successful claim. It contains the object that fills the order.
type Fill struct {
	Machine  Machine       `json:"machine,omitzero"`   // zero if the order is not for a machine
	Volume   *Volume       `json:"volume,omitempty"`   // nil if the order is not for a volume
	Task     *TaskResult   `json:"task,omitempty"`     // result of the task, once it has ended; nil if the order is not for a task
	Hold     *Hold         `json:"hold,omitempty"`     // nil if the order is not for capacity
	Claimed  time.Duration `json:"claimed"`            // time until the machine was recorded durably
	Started  time.Duration `json:"started"`            // time from that record until the machine was started
	Repeated bool          `json:"repeated,omitempty"` // an earlier claim had already filled the order
}

// FillSummary contains the properties that are common to all kinds of fills.
type FillSummary struct {
	Order  OrderID
	Worker WorkerID
	Region Region
	At     time.Time // when the fill was recorded, by the worker's clock
}

// Summary returns the common properties of f.
func (f *Fill) Summary() FillSummary {
	switch f.Kind() {
	case KindVolume:
		return FillSummary{f.Volume.Order, f.Volume.Worker, f.Volume.Region, f.Volume.CreatedAt}
	case KindTask:
		return FillSummary{f.Task.Order, f.Task.Worker, f.Task.Region, f.Task.StartedAt}
	case KindHold:
		return FillSummary{f.Hold.Order, f.Hold.Worker, f.Hold.Region, f.Hold.CreatedAt}
	case KindMachine:
	}
	m := &f.Machine
	return FillSummary{m.Order, m.Worker, m.Region, m.CreatedAt}
}

// Fill returns the fill if the worker has already filled the order. Otherwise, it returns nil.
func (q *Quote) Fill() *Fill {
	switch {
	case q.Filled != nil:
		return &Fill{Machine: *q.Filled, Repeated: true}
	case q.FilledVolume != nil:
		return &Fill{Volume: q.FilledVolume, Repeated: true}
	case q.FilledTask != nil:
		return &Fill{Task: q.FilledTask, Repeated: true}
	case q.FilledHold != nil:
		return &Fill{Hold: q.FilledHold, Repeated: true}
	}
	return nil
}

// Cancellation is a worker's answer to a request to cancel an order. The worker will refuse all
// later claims of the order. If it had already filled the order with a machine or volume, it is
// destroying that machine or volume.
type Cancellation struct {
	Machine MachineID `json:"machine,omitempty"` // the machine that is being destroyed; "": the order had no machine
	Volume  VolumeID  `json:"volume,omitempty"`  // the volume that is being destroyed; "": the order had no volume
}

// Kind is the kind of object that an order requests and a fill contains.
type Kind string

// Kinds of orders.
const (
	KindMachine Kind = "machine" // a machine with the order's Config
	KindVolume  Kind = "volume"  // the volume in the order's Volume
	KindTask    Kind = "task"    // a task, on a machine that is warm for it or on one of its own (see [Order.Warm])
	KindHold    Kind = "hold"    // capacity for a machine with the order's Config
)

// kindOf returns the kind of an order or a fill, given which of its fields are set. If more than
// one is set, kindOf returns "".
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

// Kind returns the kind of the order. If the order combines several kinds, so that no worker can
// fill it, Kind returns "".
func (o *Order) Kind() Kind { return kindOf(o.Volume != nil, o.Task != nil, o.Hold != nil) }

// Kind returns the kind of the fill, or "" if the fill combines several kinds.
func (f *Fill) Kind() Kind { return kindOf(f.Volume != nil, f.Task != nil, f.Hold != nil) }

// Outcome is the outcome of an order.
type Outcome string

// Outcomes of orders.
const (
	OutcomeFilled   Outcome = "filled"
	OutcomeRefused  Outcome = "refused"
	OutcomeCanceled Outcome = "canceled" // the caller disconnected
	OutcomeTimeout  Outcome = "timeout"  // the deadline passed
	OutcomeQuoted   Outcome = "quoted"   // only quotes were requested
)

// Decision describes how an order was decided. It contains the number of workers asked, the
// refusals, the ranking of the willing workers, and the claims. The broker that made the decision
// keeps it temporarily. The worker that filled the order stores it with the machine, without the
// last claim and without the times.
type Decision struct {
	Order    OrderID   `json:"order"`
	ChosenID OrderID   `json:"chosen_id,omitempty"` // the ID that the caller has chosen, if it differs from Order
	App      AppName   `json:"app"`
	AppID    string    `json:"app_id,omitempty"` // ID of the app; see [App.Owns]
	Regions  []Choice  `json:"regions"`
	At       time.Time `json:"at"`
	Outcome  Outcome   `json:"outcome"`
	Worker   WorkerID  `json:"worker,omitempty"`  // the worker that filled the order
	Machine  MachineID `json:"machine,omitempty"` // the machine that fills the order
	Volume   VolumeID  `json:"volume,omitempty"`  // the volume that fills the order
	Rounds   []Round   `json:"rounds,omitempty"`
	Times    Times     `json:"times"`
	Message  string    `json:"message,omitempty"` // text of the error that the caller received
}

// Round describes one round of quotes. In a round, the broker asks all workers in one choice of
// regions, or only a sample of them. If every worker in the sample refuses, the broker asks the
// others in another round. If every worker has recently quoted a similar order, the broker asks
// none of them. It ranks the recent quotes instead, adjusted for the claims made since then.
type Round struct {
	Regions     Choice         `json:"regions"`
	Candidates  int            `json:"candidates"`             // number of workers known in the choice's regions
	Asked       int            `json:"asked"`                  // number of workers asked
	OldestQuote time.Duration  `json:"oldest_quote,omitempty"` // age of the oldest quote used, if no worker was asked; otherwise 0
	Ranked      []Ranking      `json:"ranked,omitempty"`       // ranking, best first; at most MaxRecorded entries
	Shadow      *Shadow        `json:"shadow,omitempty"`       // comparison with the shadow policy; nil if there is none
	Refusals    []Refusal      `json:"refusals,omitempty"`     // refusals received in response to requests for quotes; at most MaxRecorded entries
	Claims      []ClaimAttempt `json:"claims,omitempty"`
}

// MaxRecorded is the maximum length of each list in a Decision's Rounds.
const MaxRecorded = 64

// Ranking contains the score of a willing worker. Scores are from 0 (worst) to 1 (best). Parts
// contains the weighted parts of the score, and Score is their sum.
type Ranking struct {
	Worker WorkerID    `json:"worker"`
	Region Region      `json:"region"`
	Score  float64     `json:"score"`
	Parts  []ScorePart `json:"parts,omitempty"`
	Policy string      `json:"policy,omitempty"` // name@version of the policy that computed the score; "" if the built-in curves did
}

// Shadow describes what a shadow policy would have changed. A shadow policy also ranks the willing
// workers, but its ranking is only recorded.
type Shadow struct {
	Policy string   `json:"policy"` // name@version
	Worker WorkerID `json:"worker"` // the worker that the shadow policy ranks first; on a tie, the worker that the actual ranking ranks first
	Region Region   `json:"region"`
	Score  float64  `json:"score"` // the shadow policy's score for Worker
	Gain   float64  `json:"gain"`  // Score minus the shadow policy's score for the worker that was actually ranked first; 0 if the policies agree
}

// ScorePart is the contribution of one curve to a score.
type ScorePart struct {
	Name  string  `json:"name"`  // name of a resource, or of another curve, such as "image" or "position"
	Value float64 `json:"value"` // the curve's input
	Score float64 `json:"score"` // the curve's result, multiplied by the curve's share of the total weight
}

// ClaimAttempt is a claim on one worker, with its result.
type ClaimAttempt struct {
	Worker  WorkerID      `json:"worker"`
	Refusal *Refusal      `json:"refusal,omitempty"` // nil: the worker filled the order
	Took    time.Duration `json:"took"`
}

// Times contains the duration of each phase of an order. The fields are in the same order as in
// the Server-Timing header.
type Times struct {
	Quote time.Duration `json:"quote"`
	Rank  time.Duration `json:"rank"`
	Claim time.Duration `json:"claim"`
	Start time.Duration `json:"start"`
	Total time.Duration `json:"total"`
}

// Refusals returns all refusals of the decision, both those in response to requests for quotes and
// those in response to claims.
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
