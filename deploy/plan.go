// Package deploy plans how to change an app to its desired state. Planning is a pure
// function of the desired [App] and the current [State]. The result is a [Plan], which
// consists of steps and the dependencies between them. Strategies, spares, moves and
// rollbacks differ only in the plans that they produce; package deploy/run executes all
// plans in the same way.
//
// The progress of an interrupted plan can be determined from the metadata of the machines that it created. A new plan
// continues from there, so no other state is stored.
package deploy

import (
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// State is the current state of an app, as reported by the API.
type State struct {
	App      bourse.AppName
	Machines []machinesapi.Machine // the app's machines with their configs
	Volumes  []machinesapi.Volume
	// Versions contains each machine's former configs, newest first. Only [Undo] requires
	// them.
	Versions map[bourse.MachineID][]machinesapi.Version
}

// Plan is a list of steps with their dependencies. Commands print it if --plan and --json are set.
type Plan struct {
	App     bourse.AppName `json:"app"`
	Release release.ID     `json:"release,omitempty"` // release that the plan records on the machines that it creates or updates
	What    string         `json:"what,omitempty"`    // kind of plan, such as "rolling", "bluegreen", "scale" or "move"
	// Seen describes the existing machines that the plan is based on.
	Seen     map[bourse.MachineID]Seen `json:"seen,omitempty"`
	Steps    []Step                    `json:"steps"`
	Reserve  bool                      `json:"reserve,omitempty"`  // capacity for all steps must be reserved before the first step
	Warnings []string                  `json:"warnings,omitempty"` // such as a machine that is left unchanged, with the reason
	Refused  []string                  `json:"refused,omitempty"`  // reasons why the plan cannot be executed; usually empty
}

// Step is an action of a plan. It may begin once all steps in After have succeeded.
type Step struct {
	ID     int           `json:"id"` // index of the step in the plan
	Do     Action        `json:"-"`  // encoded as part of the step, see [Step.MarshalJSON]
	After  []int         `json:"after,omitempty"`
	Group  string        `json:"group,omitempty"`
	Region bourse.Region `json:"region,omitempty"`

	// Machine is the existing machine that the step acts on. If the plan itself creates the machine, MadeBy is the ID
	// of the MakeMachine step instead. Both are zero if the action does not concern a machine.
	Machine bourse.MachineID `json:"machine,omitempty"`
	MadeBy  *int             `json:"made_by,omitempty"`
	Name    string           `json:"name,omitempty"` // name of Machine, for display

	Why string `json:"why"` // reason to show to users, such as "image changed from a to b"
}

// Seen describes a machine as it was when the plan was made. If the machine changes afterward, the plan is no longer
// valid.
type Seen struct {
	Instance bourse.InstanceID `json:"instance"`
	Name     string            `json:"name,omitempty"`
	Cordoned bool              `json:"cordoned,omitempty"`
	Paused   bool              `json:"paused,omitempty"` // an unfinished plan is about to remove the machine, see KeyPaused
	Lost     bool              `json:"lost,omitempty"`   // the machine's worker does not answer
}

// Metadata keys that plans set on machines. Other API clients also use the first four.
const (
	KeyPlatform = "fly_platform_version" // "v2" if deploys manage the machine
	KeyGroup    = "fly_process_group"
	KeyRelease  = "fly_release_id"
	KeyVersion  = "fly_release_version"
	KeyCanary   = "fly_canary"            // "true" if the machine only tests a release and is then destroyed
	KeyReplaces = bourse.MetadataReplaces // machine that this one replaces; while both exist, they count as one
	// KeyCopies is set on a machine that mounts a fork of the replaced machine's volume. Its value identifies the
	// replaced machine's latest start before the fork.
	KeyCopies = "bourse_copies"
	KeyPaused = "bourse_paused" // "true" if an unfinished plan is about to remove the machine, and may have cordoned and stopped it
)

// Platform is the value of KeyPlatform for machines that deploys manage.
const Platform = "v2"

// CommandGroup is the process group of machines that run release commands.
const CommandGroup = "fly_app_release_command"

// VolumesLeft returns the volumes that remain after the plan has destroyed their machines. It considers only steps for
// which done returns true, or all steps if done is nil.
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

// Undoable returns the steps to undo after a failure, in the order in which to undo them. begun reports, by step ID,
// which steps have begun; the others must not begin afterward. If an existing machine or volume may already have been
// destroyed, its replacement must stay. Therefore, the steps that preceded its destruction are not undone.
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
