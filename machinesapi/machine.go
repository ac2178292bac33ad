package machinesapi

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Machine is a machine in the Machines API.
type Machine struct {
	Summary
	Detail
	Placement
}

// Summary contains the machine fields that even a summary list includes.
type Summary struct {
	ID         bourse.MachineID  `json:"id"`
	Name       string            `json:"name"`
	State      bourse.State      `json:"state"`
	Region     bourse.Region     `json:"region"`
	InstanceID bourse.InstanceID `json:"instance_id"`
	Version    bourse.InstanceID `json:"version"` // same value as Instance, under a newer name
	PrivateIP  string            `json:"private_ip"`
	CreatedAt  string            `json:"created_at"` // RFC 3339 in UTC, without fractions of a second
	UpdatedAt  string            `json:"updated_at"`
	Cordoned   bool              `json:"cordoned"`
	ImageRef   bourse.ImageRef   `json:"image_ref"`
}

// Detail contains the other machine fields of the Machines API, most of which a summary list omits.
type Detail struct {
	// Config is the complete config, as the client sent it. It is nil in a summary, or if the broker has only the
	// IncompleteConfig. IncompleteConfig lacks the environment, files, processes and containers, which only the
	// machine's worker has.
	Config           *bourse.Config `json:"config,omitempty"`
	IncompleteConfig *bourse.Config `json:"incomplete_config,omitempty"`

	Events     []Event              `json:"events,omitempty"` // newest first
	Checks     []bourse.CheckStatus `json:"checks,omitempty"` // in the order of the config's checks
	HostStatus HostStatus           `json:"host_status,omitempty"`
	HostHeard  string               `json:"host_heard_at,omitempty"` // RFC 3339; when the host was last reachable, if its status is not ok
	Nonce      string               `json:"nonce,omitempty"`         // only in the reply to the creation of a machine with a lease
	Lease      *LeaseInfo           `json:"lease,omitempty"`         // only if requested
}

// Known returns the config, or the incomplete config if the complete one is unknown. In a summary, both are nil.
func (d *Detail) Known() *bourse.Config {
	if d.Config != nil {
		return d.Config
	}
	return d.IncompleteConfig
}

// Placement contains the fields that Bourse adds to the Machines API's machines.
type Placement struct {
	App     bourse.AppName  `json:"app,omitempty"`
	Worker  bourse.WorkerID `json:"worker,omitempty"`
	OrderID bourse.OrderID  `json:"order_id,omitempty"` // ID of the order that the machine fills
	Port    int             `json:"port,omitempty"`     // value of the variable PORT in the machine's environment
	PID     int             `json:"pid,omitempty"`      // process ID on the worker's host, while the machine is running
	Starts  int             `json:"starts,omitempty"`   // number of starts, including restarts
	Exit    *ExitEvent      `json:"exit,omitempty"`     // how the program exited, until the machine is started again
	// PromotedFor is the lost machine that this standby has replaced; see config.standbys.
	PromotedFor bourse.MachineID `json:"promoted_for,omitempty"`
	// NameConflict is the ID of an older machine that has the same name in the same app, according to the broker's
	// view. It is set in lists, and in replies to requests that get or create the machine.
	NameConflict bourse.MachineID `json:"name_conflict,omitempty"`
	// Warnings lists the request's ignored fields. It is set only in the reply to that request, whose headers contain
	// the same warnings.
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// HostStatus describes whether a machine's worker is reachable.
type HostStatus string

// Statuses of a host. Clients treat every status except ok as unreachable.
const (
	HostOK          HostStatus = "ok"          // the worker is reachable, or has just replied about the machine
	HostUnreachable HostStatus = "unreachable" // the worker is not reachable, so the data may be out of date
	HostUnknown     HostStatus = "unknown"     // the broker has not heard from the worker since the broker started
)

// FromMachine converts a machine, including its events. The caller must set Nonce and Lease if they
// may be shown.
func FromMachine(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Detail: detail(m), Placement: Placement{
		App: m.App, Worker: m.Worker, OrderID: m.Order, Port: m.Boot.Port, PID: m.Boot.PID, Starts: m.Boot.Number, Exit: exitOf(m),
		PromotedFor: m.Boot.PromotedFor,
	}}
}

func exitOf(m *bourse.Machine) *ExitEvent {
	if m.Boot.Exit == nil {
		return nil
	}
	return fromExit(&bourse.ExitEvent{Exit: *m.Boot.Exit, RequestedStop: m.Boot.Requested, Restarting: m.State == bourse.StateRestarting})
}

// SummaryOf converts a machine to a summary, which lacks its config and events.
func SummaryOf(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Placement: Placement{App: m.App, Worker: m.Worker, OrderID: m.Order}}
}

func summary(m *bourse.Machine) Summary {
	return Summary{
		ID: m.ID, Name: m.Name, State: m.State, Region: m.Region, InstanceID: m.Instance, Version: m.Instance,
		PrivateIP: privateIP(m), CreatedAt: seconds(m.CreatedAt), UpdatedAt: seconds(m.UpdatedAt), Cordoned: m.Cordoned, ImageRef: imageRef(m),
	}
}

func privateIP(m *bourse.Machine) string {
	if !m.PrivateIP.IsValid() {
		return ""
	}
	return m.PrivateIP.String()
}

// imageRef returns the reference to which the machine's image name was resolved, or the parsed name if it was not
// resolved.
func imageRef(m *bourse.Machine) bourse.ImageRef {
	if m.Image != nil {
		return *m.Image
	}
	return bourse.ParseImageRef(m.Config.Image)
}

func detail(m *bourse.Machine) Detail {
	config := m.Config
	guest := bourse.Guest{}
	if config.Guest != nil {
		guest = *config.Guest
	}
	guest = guest.WithDefaults() // clients dereference the guest without a check
	config.Guest = &guest
	if workload.Validate(&config.StoredConfig) != nil { // the config may come from a hostile worker
		config.StoredConfig = bourse.StoredConfig{}
	}
	return Detail{Config: &config, Events: FromEvents(m.LastEvents), Checks: workload.CheckStatuses(m), HostStatus: HostOK}
}

func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// ImageName returns the image name that a request refers to. When clients clone a machine whose image is "host" or
// "pull", or resolve such an image, they add a tag or digest to the name. ImageName removes it, because these images do
// not have tags or digests. It returns all other names unchanged.
func ImageName(image string) string {
	bare, _, _ := strings.Cut(image, "@")
	for _, name := range []string{bourse.ImageHost, bourse.ImagePull} {
		if bare == name || bare == name+":"+bourse.DefaultTag || bare == "/"+name || bare == "/"+name+":"+bourse.DefaultTag {
			return name
		}
	}
	return image
}
