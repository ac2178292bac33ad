package pull

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Job is the description of a job for pollers.
type Job struct {
	Name    string           `json:"name"` // the machine's name, or its id if another job has that name
	Machine bourse.MachineID `json:"machine"`
	Command []string         `json:"command"`
	Env     []string         `json:"env,omitempty"` // "NAME=value"
	Dir     string           `json:"dir,omitempty"` // working directory; default: the poller's choice
	Size    Size             `json:"size"`
}

// Size is the size of a job or the capacity of a host.
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

// waste returns the sum of the parts of s relative to total. A job fits best into the host for which the remaining
// capacity wastes least.
func (s Size) waste(total Size) float64 {
	part := func(left, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return float64(left) / float64(of)
	}
	return part(int64(s.CPU), int64(total.CPU)) + part(int64(s.Memory), int64(total.Memory)) + part(int64(s.Disk), int64(total.Disk))
}

// phase is the progress of a job. It only increases, unless a claim could not be written.
type phase int

const (
	offered  phase = iota
	claiming       // the claim is being written
	running
	ending // the end is being written
	ended
	withdrawn // never claimed, and cannot be claimed any more
)

// job is one boot of one machine. Driver.mu guards all fields. In the phases claiming and ending, only the writer
// changes them.
type job struct {
	record
	task  driver.Task // dropped once the job is claimed
	phase phase

	to        *host     // the host of the latest offer; nil for a poller without a host
	at        time.Time // time of the latest offer
	due       bool      // to be offered to the next poller
	forgotten bool      // the worker has recorded its end
	cancel    uint64
	watchers  int       // open calls that are signs of life
	heard     time.Time // time of the latest other sign of life
	changed   chan struct{}
}

func jobOf(r *record) *job {
	j := &job{record: *r, phase: running, changed: make(chan struct{})}
	if r.Exit != nil {
		j.phase = ended
	}
	return j
}

// claimed reports whether j is or was claimed. Driver.mu is held.
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

func (j *job) told() Job {
	return Job{Name: j.Name, Machine: j.ID.Machine, Command: j.task.Command, Env: j.task.Env, Dir: j.task.Dir, Size: j.Size}
}

// Held describes a claimed job.
type Held struct {
	By     string // the poller that claimed it
	Host   string // the poller's registered host, if any
	Output []byte // reported with the job's end
}

// Held returns the claimed job of a machine, and false if there is none.
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
