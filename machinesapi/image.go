package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// WorkerImage is an image on one worker.
type WorkerImage struct {
	Worker bourse.WorkerID `json:"worker"`
	Region bourse.Region   `json:"region"`
	bourse.Image
}

// ImageList is the reply to a request for images.
type ImageList struct {
	Images []WorkerImage `json:"images"`
}

// ImageTarget selects workers: all of them, those of a region, or a single one.
type ImageTarget struct {
	Region bourse.Region   `json:"region,omitempty"`
	Worker bourse.WorkerID `json:"worker,omitempty"`
}

// PullImage is the body of a request to pull an image before a machine needs it.
type PullImage struct {
	Image string `json:"image"`
	ImageTarget
}

// PullLine is one line of the reply to a [PullImage] request. It describes one worker's progress. In the last line
// about a worker, either Done or Error is set.
type PullLine struct {
	Worker bourse.WorkerID `json:"worker"`
	Region bourse.Region   `json:"region"`
	Image  *bourse.Image   `json:"image,omitempty"`
	Done   bool            `json:"done,omitempty"`
	Error  *ErrorBody      `json:"error,omitempty"`
}

// Err returns the error if the pull has failed on the line's worker, and nil otherwise.
func (l *PullLine) Err() error {
	if l.Error == nil {
		return nil
	}
	return &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error)}
}

// Usage is a machine's resource usage and limits. A value of -1 means that the host does not
// measure the resource. A limit of 0 means that there is no limit.
type Usage struct {
	At        time.Time          `json:"at"`
	CPUMS     int64              `json:"cpu_ms"`       // CPU time since the machine's start
	Throttled int64              `json:"throttled_ms"` // time for which the CPU quota has stalled the machine
	CPUs      float64            `json:"cpus"`         // average number of cores in use over the last few seconds
	CPULimit  float64            `json:"cpu_limit"`    // number of cores
	Memory    int64              `json:"memory_bytes"` // memory in use, without the page cache
	MemLimit  int64              `json:"memory_limit_bytes"`
	PIDs      int64              `json:"pids"`
	Read      int64              `json:"read_bytes"` // bytes read from disks since the machine's start
	Written   int64              `json:"written_bytes"`
	Tasks     *bourse.TaskCounts `json:"tasks,omitempty"` // tasks that a warm machine has run since the start of its worker's daemon
}
