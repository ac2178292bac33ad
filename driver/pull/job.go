package pull

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Job is what a poller is told of a job.
type Job struct {
	Name    string           `json:"name"` // the machine's, or its id where another job has that name
	Machine bourse.MachineID `json:"machine"`
	Command []string         `json:"command"`
	Env     []string         `json:"env,omitempty"` // "NAME=value"
	Dir     string           `json:"dir,omitempty"` // working directory; default the poller's choice
	Size    Size             `json:"size"`
}

// Size is how much a job needs, or a host has.
type Size struct {
	CPU    bourse.MilliCPU `json:"cpu"`    // thousandths of a core
	Memory bourse.MiB      `json:"memory"` // MiB
	Disk   bourse.MiB      `json:"disk"`   // MiB
}

func sizeOf(l driver.Limits) Size { return Size{CPU: l.CPUQuota, Memory: l.Memory, Disk: l.Disk} }

func (s Size) less(o Size) Size {
	return Size{CPU: s.CPU - o.CPU, Memory: s.Memory - o.Memory, Disk: s.Disk - o.Disk}
}

func (s Size) plus(o Size) Size {
	return Size{CPU: s.CPU + o.CPU, Memory: s.Memory + o.Memory, Disk: s.Disk + o.Disk}
}

// holds reports whether need fits into s.
func (s Size) holds(need Size) bool {
	return need.CPU <= s.CPU && need.Memory <= s.Memory && need.Disk <= s.Disk
}

// waste is how much of total s is, summed over the parts: the host that a job
// leaves least of is the one that it fits best.
func (s Size) waste(total Size) float64 {
	part := func(left, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return float64(left) / float64(of)
	}
	return part(int64(s.CPU), int64(total.CPU)) + part(int64(s.Memory), int64(total.Memory)) + part(int64(s.Disk), int64(total.Disk))
}

// phase is how far a job has come. It only grows, but for a claim that could
// not be written down.
type phase int

const (
	offered  phase = iota
	claiming       // its claim is being written down
	running
	ending // its end is being written down
	ended
	withdrawn // it was never claimed, and cannot be any more
)

// job is one boot of one machine. All is guarded by Driver.mu, but that in the
// phases claiming and ending no one but the writer changes anything.
type job struct {
	record
	task  driver.Task // what pollers are told of; not kept once it is claimed
	phase phase

	to        *host     // that was offered it last; nil: a poller without a name
	at        time.Time // when that was
	due       bool      // the next poller that comes is to be offered it
	forgotten bool      // its end is recorded elsewhere
	cancel    uint64
	watchers  int       // open calls that speak for its poller
	heard     time.Time // when the last other sign of life came
	changed   chan struct{}
}

func jobOf(r *record) *job {
	j := &job{record: *r, phase: running, changed: make(chan struct{})}
	if r.Exit != nil {
		j.phase = ended
	}
	return j
}

// claimed reports whether somebody has j, or had it until its end. Its caller
// holds Driver.mu.
func (j *job) claimed() bool { return j.phase == running || j.phase == ending || j.phase == ended }

// enter changes j's phase and tells who waits for that.
func (j *job) enter(p phase) {
	j.phase = p
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *job) status() driver.Status {
	s := driver.Status{ID: j.ID, StartedAt: j.StartedAt}
	if j.phase == ended {
		s.Exit = j.Exit
	}
	return s
}

func (j *job) told() Job {
	return Job{Name: j.Name, Machine: j.ID.Machine, Command: j.task.Command, Env: j.task.Env, Dir: j.task.Dir, Size: j.Size}
}

// Held is what is known of a claimed job.
type Held struct {
	By     string // who claimed it
	Host   string // the same, when it is a registered host
	Output []byte // that came with its end
}

// Held tells about a machine's job, false when none is claimed.
func (d *Driver) Held(id bourse.MachineID) (Held, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	if j == nil {
		return Held{}, false
	}
	h := Held{By: j.By, Host: j.Host}
	if j.phase == ended {
		h.Output = j.Output
	}
	return h, true
}
