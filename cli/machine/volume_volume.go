package machine

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewVolume returns the "volume" commands.
func NewVolume(s *cli.Shell) *cobra.Command {
	c := cli.Noun("volume", "Manage volumes",
		newVolumeCreate(s), newVolumeList(s), newVolumeShow(s), newVolumeExtend(s), newSnapshot(s), newFork(s), newVolumeDestroy(s))
	c.Aliases = []string{"volumes", "vol"}
	return c
}

// listVolumes returns an app's volumes.
func listVolumes(ctx context.Context, s *cli.Shell, app string) ([]machinesapi.Volume, error) {
	list, silent, err := s.Client().Volumes(bourse.AppName(app)).List(ctx)
	s.WarnMissing(silent, "volumes")
	return list, err
}

// resolveVolume returns a volume's id. word is either that id, or a name that only one of the
// app's volumes has.
func resolveVolume(ctx context.Context, s *cli.Shell, app, word string) (bourse.VolumeID, error) {
	if id := bourse.VolumeID(word); id.Validate() == nil {
		return id, nil
	}
	list, err := listVolumes(ctx, s, app)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(v machinesapi.Volume) bool { return v.Name != word || !living(v.State) })
	switch len(list) {
	case 1:
		return list[0].ID, nil
	case 0:
		err := bourse.Errorf(bourse.CodeNotFound, "app %s has no volume %s", app, bourse.Quoted(word))
		return "", cli.Hint(err, "bourse volume list -a "+app)
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = string(list[i].ID)
	}
	err = bourse.Errorf(bourse.CodeInvalid, "%d volumes of app %s are named %s", len(list), app, bourse.Quoted(word))
	return "", cli.Hint(err, "one of "+strings.Join(ids, ", "))
}

func living(state bourse.VolumeState) bool {
	return state != bourse.VolumeDestroyed && state != bourse.VolumeDestroying
}

// hintVolume adds a hint to an error from the API.
func hintVolume(err error, app string, id bourse.VolumeID) error {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return cli.Hint(err, "bourse volume list -a "+app)
	case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		return cli.Hint(err, "bourse volume show -a "+app+" "+string(id))
	default:
		return err
	}
}

func attachedTo(v *machinesapi.Volume) string {
	if v.Machine == nil {
		return ""
	}
	return string(*v.Machine)
}
