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

// ImageList is the reply with images.
type ImageList struct {
	Images []WorkerImage `json:"images"`
}

// ImageTarget selects workers: all, those of a region, or one.
type ImageTarget struct {
	Region bourse.Region   `json:"region,omitempty"`
	Worker bourse.WorkerID `json:"worker,omitempty"`
}

// PullImage is the body of a request to pull an image before a machine needs it.
type PullImage struct {
	Image string `json:"image"`
	ImageTarget
}

// PullLine is one line of a pull's reply: the progress of one worker. A worker's last line has Done, or the Error
// that ended the pull there.
type PullLine struct {
	Worker bourse.WorkerID `json:"worker"`
	Region bourse.Region   `json:"region"`
	Image  *bourse.Image   `json:"image,omitempty"`
	Done   bool            `json:"done,omitempty"`
	Error  *ErrorBody      `json:"error,omitempty"`
}

// Err returns the error that ended the pull on the line's worker, or nil.
func (l *PullLine) Err() error {
	if l.Error == nil {
		return nil
	}
	return &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error)}
}

// Usage is a machine's resource usage and limits. A value of -1 means that the host does not measure it; a limit of 0
// means no limit.
type Usage struct {
	At        time.Time         `json:"at"`
	CPUMS     int64             `json:"cpu_ms"`       // since the start
	Throttled int64             `json:"throttled_ms"` // time spent waiting for the CPU quota
	CPUs      float64           `json:"cpus"`         // cores used over the last seconds
	CPULimit  float64           `json:"cpu_limit"`    // cores
	Memory    int64             `json:"memory_bytes"` // without the page cache
	MemLimit  int64             `json:"memory_limit_bytes"`
	PIDs      int64             `json:"pids"`
	Read      int64             `json:"read_bytes"` // from disks, since the start
	Written   int64             `json:"written_bytes"`
	Tasks     *bourse.TaskTally `json:"tasks,omitempty"` // tasks that a warm machine has run since its worker's daemon started
}
