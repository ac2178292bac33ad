package deploy

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// State is what is there, as the API says it.
type State struct {
	Machines []machinesapi.Machine `json:"machines"` // with their configs
	Volumes  []machinesapi.Volume  `json:"volumes,omitempty"`
	// Versions are the former configs of machines, newest first; only plans that return
	// to them need it.
	Versions map[bourse.MachineID][]machinesapi.Version `json:"versions,omitempty"`
}

// Plan is what is to be done.
type Plan struct {
	App     bourse.AppName `json:"app"`
	Release release.ID     `json:"release,omitempty"` // that its machines will be of
	// Basis identifies what the plan was made of: another of the same state and wishes
	// has the same. A saved plan whose basis is not that of today does not fit any more.
	Basis string `json:"basis"`
	Steps []Step `json:"steps"`
	// Reserve says that room for all that the steps take is held before the first of them.
	Reserve  bool     `json:"reserve,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what a reader should know: a machine that is not touched, and why
	Refused  []string `json:"refused,omitempty"`  // what cannot be, and why; a plan that has any is not carried out
}

// Step is one thing to be done. It may begin once all of After have ended well.
type Step struct {
	ID    int           `json:"id"` // its index in the plan
	Do    Act           `json:"do"`
	After []int         `json:"after,omitempty"`
	Group string        `json:"group,omitempty"`
	In    bourse.Region `json:"region,omitempty"`

	// Machine is what it is done to; or, of a machine that a step before this one
	// makes, Of is that step (and Machine is empty).
	Machine bourse.MachineID `json:"machine,omitempty"`
	Of      *int             `json:"of,omitempty"`
	Name    string           `json:"name,omitempty"` // of the machine, to print

	Config *bourse.Config `json:"config,omitempty"` // of MakeMachine, UpdateMachine and RunCommand: the whole of it
	// Former is the config that an UpdateMachine replaces, to return to.
	Former *bourse.Config `json:"former,omitempty"`
	// Instance is the version that the plan was made for; another is refused (current_version).
	Instance bourse.InstanceID `json:"instance,omitempty"`
	Stopped  bool              `json:"stopped,omitempty"`   // the machine is not started
	Hidden   bool              `json:"hidden,omitempty"`    // it is made without being served (skip_service_registration)
	Volume   *VolumeWant       `json:"volume,omitempty"`    // of MakeVolume
	VolumeOf *int              `json:"volume_of,omitempty"` // the MakeVolume step whose volume the machine mounts
	Why      string            `json:"why"`                 // for a reader: "image changed from a to b"
}

// VolumeWant is a volume to be made: empty, or as a fork of another.
type VolumeWant struct {
	Name   string          `json:"name"`
	SizeGB int64           `json:"size_gb"`
	Fork   bourse.VolumeID `json:"fork,omitempty"`
}

// Act is what a step does.
type Act string

// The acts. What undoes one is in parentheses.
const (
	RunCommand      Act = "run command"      // a machine of its own, which ends with 0 (nothing)
	MakeVolume      Act = "make volume"      // (destroy it)
	MakeMachine     Act = "make machine"     // (destroy it)
	UpdateMachine   Act = "update machine"   // (update it to Former)
	AwaitReady      Act = "await ready"      // started, its smoke and health checks pass (nothing)
	RestartMachine  Act = "restart machine"  // (nothing)
	UncordonMachine Act = "uncordon machine" // (cordon it)
	CordonMachine   Act = "cordon machine"   // (uncordon it)
	AwaitProxies    Act = "await proxies"    // every proxy has heard of what was done before (nothing)
	StopMachine     Act = "stop machine"     // (start it)
	StartMachine    Act = "start machine"    // (stop it)
	SetMetadata     Act = "set metadata"     // Config.Metadata, member by member; an empty value removes (as it was in Former)
	DestroyMachine  Act = "destroy machine"  // nothing returns it: it has no step after it that may fail
	DestroyVolume   Act = "destroy volume"   // likewise
)

// Metadata of machines that plans make. The first four are those of other clients of the API.
const (
	KeyPlatform = "fly_platform_version" // "v2": a deploy looks after the machine
	KeyGroup    = "fly_process_group"
	KeyRelease  = "fly_release_id"
	KeyVersion  = "fly_release_version"
	KeyCanary   = "fly_canary"      // "true": one that tries a release, and goes again
	KeyReplaces = "bourse_replaces" // the machine whose place it takes: while that exists, the two count as one
)
