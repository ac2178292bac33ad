package pull

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Job describes a job to pollers.
type Job struct {
	Name    string           `json:"name"` // the machine's name, or the machine's id if another job has that name
	Machine bourse.MachineID `json:"machine"`
	Command []string         `json:"command"`
	Env     []string         `json:"env,omitempty"` // "NAME=value"
	Dir     string           `json:"dir,omitempty"` // working directory; default: the poller's choice
	Size    Size             `json:"size"`
}

// Size is the size of a job or of a host.
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

// holds reports whether a job of size need fits into s.
func (s Size) holds(need Size) bool {
	return need.CPU <= s.CPU && need.Memory <= s.Memory && need.Disk <= s.Disk
}

// waste returns the sum of the unused fractions of a host's resources. s is the host's unused
// capacity after a job has been placed on it, and total is the host's size. The best host for the
// job is the one with the least waste.
func (s Size) waste(total Size) float64 {
	part := func(left, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return float64(left) / float64(of)
	}
	return part(int64(s.CPU), int64(total.CPU)) + part(int64(s.Memory), int64(total.Memory)) + part(int64(s.Disk), int64(total.Disk))
}

// phase is the progress of a job. A job never returns to an earlier phase, with one exception: if
// the record of its claim or of its completion cannot be written, it returns to its previous phase.
type phase int

const (
	offered  phase = iota
	claiming       // the claim is being written
	running
	ending // the end is being written
	ended
	withdrawn // the job was never claimed and can no longer be claimed
)

// job is one boot of a machine. Driver.mu guards all fields. In the phases claiming and ending,
// only the goroutine that writes the record may change them.
type job struct {
	record
	task  driver.Task // cleared once the job is claimed
	phase phase

	to        *host     // host of the latest offer; nil if the poller has no host
	at        time.Time // time of the latest offer
	due       bool      // whether the job must be offered to the next suitable caller of Next
	forgotten bool      // whether the worker has discarded the job's exit
	cancel    uint64
	watchers  int       // number of open calls to Cancellations that name the job
	lastSeen  time.Time // when the latest other heartbeat arrived, or when the latest call to Cancellations ended
	changed   chan struct{}
}

func jobOf(r *record) *job {
	j := &job{record: *r, phase: running, changed: make(chan struct{})}
	if r.Exit != nil {
		j.phase = ended
	}
	return j
}

// claimed reports whether j was claimed. It is also true after the job has ended. Driver.mu must be
// held.
func (j *job) claimed() bool { return j.phase == running || j.phase == ending || j.phase == ended }

// enter sets j's phase and wakes the goroutines that wait for a change.
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

func (j *job) description() Job {
	return Job{Name: j.Name, Machine: j.ID.Machine, Command: j.task.Command, Env: j.task.Env, Dir: j.task.Dir, Size: j.Size}
}

// Held describes a claimed job.
type Held struct {
	By     string // display name of the poller that claimed the job
	Host   string // the poller's registered host, or ""
	Output []byte // output reported with the job's end
}

// Held returns information about a machine's latest claimed job. It returns false if there is none.
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
