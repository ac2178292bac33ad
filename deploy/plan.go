// Package deploy plans how to bring an app to its desired state. Planning is a pure function of the desired
// [App] and the current [State]. Its result is a [Plan]: steps, and the order among them. Strategies, spares,
// moves and rollbacks are shapes of plans; package deploy/run carries plans out and treats them all alike.
//
// The progress of an interrupted plan is recorded in the metadata of the machines that it made. A new plan
// continues from there, so nothing else is stored.
package deploy

import (
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// State is the current state of an app, as the API reports it.
type State struct {
	App      bourse.AppName
	Machines []machinesapi.Machine // with their configs
	Volumes  []machinesapi.Volume
	// Versions are the former configs of machines, newest first. Only [Undo] needs them.
	Versions map[bourse.MachineID][]machinesapi.Version
}

// Plan is a list of steps. "--plan --json" prints it.
type Plan struct {
	App     bourse.AppName `json:"app"`
	Release release.ID     `json:"release,omitempty"` // of the machines that it makes and updates
	What    string         `json:"what,omitempty"`    // the kind of plan, for a reader: "rolling", "bluegreen", "scale", "move"
	// Seen describes the machines that the plan was made from.
	Seen     map[bourse.MachineID]Seen `json:"seen,omitempty"`
	Steps    []Step                    `json:"steps"`
	Reserve  bool                      `json:"reserve,omitempty"`  // capacity for all steps is reserved before the first one
	Warnings []string                  `json:"warnings,omitempty"` // such as a machine that is left alone, and the reason
	Refused  []string                  `json:"refused,omitempty"`  // reasons why the plan cannot be carried out; usually none
}

// Step is one action of a plan. It may begin once all of After have succeeded.
type Step struct {
	ID     int           `json:"id"` // its index in the plan
	Do     Action        `json:"-"`  // in JSON, "do" is its name, and its fields are the step's; see [Step.MarshalJSON]
	After  []int         `json:"after,omitempty"`
	Group  string        `json:"group,omitempty"`
	Region bourse.Region `json:"region,omitempty"`

	// Machine is the existing machine that the step acts on, or MadeBy the MakeMachine step that makes it. Both are
	// empty for actions that act on no machine.
	Machine bourse.MachineID `json:"machine,omitempty"`
	MadeBy  *int             `json:"made_by,omitempty"`
	Name    string           `json:"name,omitempty"` // of Machine, for a reader

	Why string `json:"why"` // for a reader: "image changed from a to b"
}

// Seen describes a machine as it was when the plan was made. A plan is no longer valid once the machine has changed.
type Seen struct {
	Instance bourse.InstanceID `json:"instance"`
	Name     string            `json:"name,omitempty"`
	Cordoned bool              `json:"cordoned,omitempty"`
	Paused   bool              `json:"paused,omitempty"` // an unfinished plan is about to remove it: see KeyPaused
	Lost     bool              `json:"lost,omitempty"`   // its worker does not answer
}

// Metadata keys that plans set on machines. Other API clients also use the first four.
const (
	KeyPlatform = "fly_platform_version" // "v2": deploys manage the machine
	KeyGroup    = "fly_process_group"
	KeyRelease  = "fly_release_id"
	KeyVersion  = "fly_release_version"
	KeyCanary   = "fly_canary"            // "true": it tries a release, and is destroyed afterwards
	KeyReplaces = bourse.MetadataReplaces // the machine that it replaces: while both exist, they count as one
	KeyCopies   = "bourse_copies"         // the replaced machine's last start before its volume was forked for this machine
	KeyPaused   = "bourse_paused"         // "true": an unfinished plan is about to remove it, and may have cordoned and stopped it
)

// Platform is the value of KeyPlatform for machines that deploys manage.
const Platform = "v2"

// CommandGroup is the group of machines that run release commands.
const CommandGroup = "fly_app_release_command"

// VolumesLeft returns the volumes of machines that the plan destroys, except the volumes that it destroys as well.
// done reports whether a step was done; nil means that all were.
func (p *Plan) VolumesLeft(done func(step int) bool) []bourse.VolumeID {
	var out, gone []bourse.VolumeID
	for i := range p.Steps {
		if done != nil && !done(i) {
			continue
		}
		switch do := p.Steps[i].Do.(type) {
		case DestroyVolume:
			gone = append(gone, do.Volume)
		case DestroyMachine:
			out = append(out, do.Volumes...)
		}
	}
	return slices.DeleteFunc(out, func(id bourse.VolumeID) bool { return slices.Contains(gone, id) })
}

// Undoable returns the steps to undo after a failure, in order. begun tells which steps have begun, and is as long as
// the plan's steps. All other steps must never begin. Steps that lead to the destruction of an existing machine or
// volume are not undone: once that may be gone, its replacement stays.
func (p *Plan) Undoable(begun []bool) []int {
	keep := make([]bool, len(p.Steps))
	var out []int
	for i := len(p.Steps) - 1; i >= 0; i-- {
		s := &p.Steps[i]
		if begun[i] && s.Final() {
			keep[i] = true
		}
		if keep[i] {
			for _, before := range s.After {
				keep[before] = true
			}
			continue
		}
		if begun[i] && s.undoable() {
			out = append(out, i)
		}
	}
	return slices.Clip(out)
}
