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

// ImageList is the reply of the images calls.
type ImageList struct {
	Images []WorkerImage `json:"images"`
}

// ImageTarget is the workers that are meant: all, those of a region, or one.
type ImageTarget struct {
	Region bourse.Region   `json:"region,omitempty"`
	Worker bourse.WorkerID `json:"worker,omitempty"`
}

// PullImage is the body of a pull ahead of the machines that need it.
type PullImage struct {
	Image string `json:"image"`
	ImageTarget
}

// PullLine is one line of a pull's reply: how far one worker has come. Its last
// line of a worker has Done, or the Error that ended the pull there.
type PullLine struct {
	Worker bourse.WorkerID `json:"worker"`
	Region bourse.Region   `json:"region"`
	Image  *bourse.Image   `json:"image,omitempty"`
	Done   bool            `json:"done,omitempty"`
	Error  *ErrorBody      `json:"error,omitempty"`
}

// Err returns the error that ended the pull on the line's worker, nil if none did.
func (l *PullLine) Err() error {
	if l.Error == nil {
		return nil
	}
	return &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error)}
}

// Usage is what a machine uses, and its limits. What its host does not
// account is -1; a limit of 0 is none.
type Usage struct {
	At        time.Time         `json:"at"`
	CPUMS     int64             `json:"cpu_ms"`       // since it started
	Throttled int64             `json:"throttled_ms"` // that it waited for its quota
	CPUs      float64           `json:"cpus"`         // cores in use, over the last seconds
	CPULimit  float64           `json:"cpu_limit"`    // cores
	Memory    int64             `json:"memory_bytes"` // without the page cache
	MemLimit  int64             `json:"memory_limit_bytes"`
	PIDs      int64             `json:"pids"`
	Read      int64             `json:"read_bytes"` // from disks, since it started
	Written   int64             `json:"written_bytes"`
	Tasks     *bourse.TaskTally `json:"tasks,omitempty"` // that a warm machine has run, since its worker's daemon began
}
