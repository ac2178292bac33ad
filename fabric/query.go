package fabric

import (
	"net/url"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// MachinesQuery selects machines: zero fields select all of them.
type MachinesQuery struct {
	App     bourse.AppName // without AppID: of every app that has or had this name
	AppID   string
	Name    string
	Deleted bool // destroyed ones too
}

func (q MachinesQuery) values() url.Values {
	v := url.Values{}
	setText(v, "app", string(q.App))
	setText(v, "app_id", q.AppID)
	setText(v, "name", q.Name)
	setFlag(v, "deleted", q.Deleted)
	return v
}

// VolumesQuery selects volumes: zero fields select all of them.
type VolumesQuery struct {
	App     bourse.AppName // without AppID: of every app that has or had this name
	AppID   string
	Deleted bool // destroyed ones too
}

func (q VolumesQuery) values() url.Values {
	v := url.Values{}
	setText(v, "app", string(q.App))
	setText(v, "app_id", q.AppID)
	setFlag(v, "deleted", q.Deleted)
	return v
}

// WaitQuery is what to wait for.
type WaitQuery struct {
	States   []bourse.State    // any of them
	Timeout  time.Duration     // 0: the worker's default
	Instance bourse.InstanceID // only while the machine is at this version
	After    bourse.EventID    // only by an event after this one
}

func (q WaitQuery) values() url.Values {
	v := url.Values{}
	for _, s := range q.States {
		v.Add("state", string(s))
	}
	if q.Timeout > 0 {
		v.Set("timeout", q.Timeout.String())
	}
	setText(v, "instance", string(q.Instance))
	setText(v, "after", string(q.After))
	return v
}

// LogsQuery selects log lines.
type LogsQuery struct {
	Since  time.Time // zero: from the beginning
	Tail   int       // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow bool      // go on until the machine is destroyed
}

func (q LogsQuery) values() url.Values {
	v := url.Values{}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if q.Tail != 0 {
		v.Set("tail", strconv.Itoa(q.Tail))
	}
	setFlag(v, "follow", q.Follow)
	return v
}

func eventsQuery(limit int) url.Values {
	if limit <= 0 {
		return nil
	}
	return url.Values{"limit": {strconv.Itoa(limit)}}
}

func setText(v url.Values, key, text string) {
	if text != "" {
		v.Set(key, text)
	}
}

func setFlag(v url.Values, key string, set bool) {
	if set {
		v.Set(key, "true")
	}
}
