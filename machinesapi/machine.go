package machinesapi

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Machine is a machine as the Machines API shows it.
type Machine struct {
	Summary
	Detail
	Placement
}

// Summary is what a summarised list shows of a machine.
type Summary struct {
	ID         bourse.MachineID  `json:"id"`
	Name       string            `json:"name"`
	State      bourse.State      `json:"state"`
	Region     bourse.Region     `json:"region"`
	InstanceID bourse.InstanceID `json:"instance_id"`
	Version    bourse.InstanceID `json:"version"` // the same again, under its newer name
	PrivateIP  string            `json:"private_ip"`
	CreatedAt  string            `json:"created_at"` // RFC 3339, seconds, Z
	UpdatedAt  string            `json:"updated_at"`
	Cordoned   bool              `json:"cordoned"`
	ImageRef   ImageRef          `json:"image_ref"`
}

// Detail is the rest of what the Machines API shows.
type Detail struct {
	Config     *bourse.Config `json:"config,omitempty"` // nil in a summary only
	Events     []Event        `json:"events,omitempty"` // newest first
	HostStatus HostStatus     `json:"host_status,omitempty"`
	HostHeard  string         `json:"host_heard_at,omitempty"` // RFC 3339: when the host was last heard from, if it is not ok
	Nonce      string         `json:"nonce,omitempty"`         // of a machine born leased, in the reply to its creation
	Lease      *LeaseInfo     `json:"lease,omitempty"`         // when asked for
}

// Placement is what Bourse adds.
type Placement struct {
	App     bourse.AppName  `json:"app,omitempty"`
	Worker  bourse.WorkerID `json:"worker,omitempty"`
	OrderID bourse.OrderID  `json:"order_id,omitempty"` // that the machine fills
	Port    int             `json:"port,omitempty"`     // what its $PORT says
	PID     int             `json:"pid,omitempty"`      // on the worker's host, while it runs
}

// HostStatus says whether a machine's worker answers.
type HostStatus string

// The statuses of a host. Clients take anything but ok as a host that cannot
// be reached.
const (
	HostOK          HostStatus = "ok"          // its worker told of the machine, or is heard from
	HostUnreachable HostStatus = "unreachable" // it is not heard from: what is told of the machine is old
	HostUnknown     HostStatus = "unknown"     // the broker has not heard of it since its own start
)

// ImageRef is an image's name in its parts. Clients put them together again as
// registry/repository:tag@digest and expect that to run.
type ImageRef struct {
	Registry   string            `json:"registry"`
	Repository string            `json:"repository"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// FromMachine shows a machine with its events. Nonce and Lease are left to the
// caller, who knows whether they may be shown.
func FromMachine(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Detail: detail(m), Placement: Placement{
		App: m.App, Worker: m.Worker, OrderID: m.Order, Port: m.Boot.Port, PID: m.Boot.PID,
	}}
}

// SummaryOf shows a machine without its config and history.
func SummaryOf(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Placement: Placement{App: m.App, Worker: m.Worker, OrderID: m.Order}}
}

func summary(m *bourse.Machine) Summary {
	return Summary{
		ID: m.ID, Name: m.Name, State: m.State, Region: m.Region, InstanceID: m.Instance, Version: m.Instance,
		CreatedAt: seconds(m.CreatedAt), UpdatedAt: seconds(m.UpdatedAt), Cordoned: m.Cordoned, ImageRef: ParseImage(m.Config.Image),
	}
}

func detail(m *bourse.Machine) Detail {
	config := m.Config
	guest := bourse.Guest{}
	if config.Guest != nil {
		guest = *config.Guest
	}
	guest = guest.WithDefaults() // clients read it without a check
	config.Guest = &guest
	return Detail{Config: &config, Events: FromEvents(m.LastEvents), HostStatus: HostOK}
}

func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

const (
	defaultRegistry = "registry-1.docker.io"
	defaultTag      = "latest"
)

// ParseImage takes an image's name apart. Names without a registry are the
// Docker Hub's. The image "host" has no registry, so that a client's
// registry/repository:tag becomes "/host:latest", which [ImageName] knows.
func ParseImage(image string) ImageRef {
	if image == bourse.ImageHost {
		return ImageRef{Repository: bourse.ImageHost, Tag: defaultTag}
	}
	name, digest, _ := strings.Cut(image, "@")
	ref := ImageRef{Registry: defaultRegistry, Repository: name, Digest: digest}
	// The part before the first slash is a registry when it looks like a host.
	if first, rest, ok := strings.Cut(name, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		ref.Registry, ref.Repository = first, rest
	}
	if ref.Registry == "docker.io" {
		ref.Registry = defaultRegistry
	}
	if i := strings.LastIndexByte(ref.Repository, ':'); i >= 0 {
		ref.Repository, ref.Tag = ref.Repository[:i], ref.Repository[i+1:]
	}
	if ref.Registry == defaultRegistry && !strings.Contains(ref.Repository, "/") {
		ref.Repository = "library/" + ref.Repository
	}
	if ref.Tag == "" && ref.Digest == "" {
		ref.Tag = defaultTag
	}
	return ref
}

// ImageName gives the image that a request means: the name itself, but "host"
// for what a client makes of that image's parts when it clones a machine.
func ImageName(image string) string {
	if image == "/"+bourse.ImageHost || image == "/"+bourse.ImageHost+":"+defaultTag {
		return bourse.ImageHost
	}
	return image
}
