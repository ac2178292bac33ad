package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Scratch makes directories for what a container writes into its root file
// system, each of a limited size. Both methods are idempotent.
type Scratch interface {
	Scratch(ctx context.Context, machine bourse.MachineID, sizeMiB int64) (path string, err error)
	RemoveScratch(ctx context.Context, machine bourse.MachineID) error
}

func (noVolumes) Scratch(context.Context, bourse.MachineID, int64) (string, error) {
	return "", errNoVolumes
}

func (noVolumes) RemoveScratch(context.Context, bourse.MachineID) error { return errNoVolumes }
