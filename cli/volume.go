package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) volume() *cobra.Command {
	c := noun("volume", "Make, see, copy and remove volumes",
		s.volumeCreate(), s.volumeList(), s.volumeShow(), s.volumeExtend(), s.volumeSnapshot(), s.volumeFork(), s.volumeDestroy())
	c.Aliases = []string{"volumes", "vol"}
	return c
}

// listVolumes gives an app's volumes.
func (s *shell) listVolumes(ctx context.Context, app string) ([]machinesapi.Volume, error) {
	list, silent, err := s.client().Volumes(ctx, bourse.AppName(app))
	s.warnAbout(silent, "volumes")
	return list, err
}

// resolveVolume finds the volume that a person means: by its id, or by a name
// that no other volume of the app has.
func (s *shell) resolveVolume(ctx context.Context, app, word string) (bourse.VolumeID, error) {
	if id := bourse.VolumeID(word); id.Validate() == nil {
		return id, nil
	}
	list, err := s.listVolumes(ctx, app)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(v machinesapi.Volume) bool { return v.Name != word || !living(v.State) })
	switch len(list) {
	case 1:
		return list[0].ID, nil
	case 0:
		err := bourse.Errorf(bourse.CodeNotFound, "app %s has no volume %s", app, bourse.Quoted(word))
		return "", hint(err, "bourse volume list -a "+app)
	}
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = string(list[i].ID)
	}
	err = bourse.Errorf(bourse.CodeInvalid, "%d volumes of app %s are named %s", len(list), app, bourse.Quoted(word))
	return "", hint(err, "one of "+strings.Join(ids, ", "))
}

// freeVolume finds the volume that a machine is to mount: of several of one
// name the first that no machine has.
func (s *shell) freeVolume(ctx context.Context, app, word string, region bourse.Region) (bourse.VolumeID, error) {
	if id := bourse.VolumeID(word); id.Validate() == nil {
		return id, nil
	}
	list, err := s.listVolumes(ctx, app)
	if err != nil {
		return "", err
	}
	taken := 0
	for _, v := range list {
		switch {
		case v.Name != word || !v.State.Usable() || region != "" && v.Region != region:
		case v.Machine != nil:
			taken++
		default:
			return v.ID, nil
		}
	}
	err = bourse.Errorf(bourse.CodeNotFound, "app %s has no free volume %s (%d in use)", app, bourse.Quoted(word), taken)
	return "", hint(err, "bourse volume create "+word+" -a "+app+" --region "+orElse(string(region), "REGION"), "bourse volume list -a "+app)
}

func living(state bourse.VolumeState) bool {
	return state != bourse.VolumeDestroyed && state != bourse.VolumeDestroying
}

// aboutVolume adds to an error from the API where to look.
func aboutVolume(err error, app string, id bourse.VolumeID) error {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound:
		return hint(err, "bourse volume list -a "+app)
	case bourse.CodeConflict, bourse.CodeFailedPrecondition:
		return hint(err, "bourse volume show -a "+app+" "+string(id))
	default:
		return err
	}
}

func (s *shell) printVolume(v *machinesapi.Volume) error {
	if s.json {
		return s.printJSON(v)
	}
	var f facts
	f.add("volume", string(v.ID)+"  "+v.Name)
	f.add("state", string(v.State))
	f.add("why", v.Error)
	f.add("app", string(v.App))
	f.add("where", fmt.Sprintf("region %s, worker %s", v.Region, orElse(string(v.Worker), "unknown")))
	f.add("size", mib(bourse.MiB(v.SizeGB)<<10))
	if u := v.VolumeUse; u != nil {
		f.add("used", bytesText(u.BytesUsed))
	}
	f.add("machine", attachedTo(v))
	if v.Encrypted {
		f.add("encrypted", "yes")
	}
	keep := count(v.SnapshotRetention, "day")
	if v.AutoBackup {
		keep += ", one each day"
	}
	f.add("snapshots", "kept "+keep)
	return f.write(s.Out)
}

func attachedTo(v *machinesapi.Volume) string {
	if v.Machine == nil {
		return ""
	}
	return string(*v.Machine)
}
