package fabric_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// TestAWorkerSpeaksForItsOwn checks that the whole reply is rejected if it contains another worker's machine or volume.
func TestAWorkerSpeaksForItsOwn(t *testing.T) {
	other := bourse.WorkerTag(7)
	mine, theirs := bourse.Machine{ID: machine}, bourse.Machine{ID: bourse.NewMachineID(other)}
	vol := bourse.Volume{ID: bourse.NewVolumeID(other)}
	var mux http.ServeMux
	f := fabrictest.Serving(&mux)
	fabric.MachineShow.Handle(&mux, func(context.Context, bourse.MachineID) (bourse.Machine, error) { return theirs, nil })
	fabric.MachineList.Handle(&mux, func(context.Context, fabric.MachinesQuery) ([]bourse.Machine, error) {
		return []bourse.Machine{mine, theirs}, nil
	})
	fabric.MachineStop.Handle(&mux, func(context.Context, fabric.MachineAction) (fabric.ActReply, error) {
		return fabric.ActReply{Machine: theirs}, nil
	})
	fabric.MachineWait.Handle(&mux, func(context.Context, fabric.WaitQuery) (fabric.WaitReply, error) {
		return fabric.WaitReply{Machine: &theirs}, nil
	})
	fabric.VolumeShow.Handle(&mux, func(context.Context, bourse.VolumeID) (bourse.Volume, error) { return vol, nil })
	fabric.VolumeList.Handle(&mux, func(context.Context, fabric.VolumesQuery) ([]bourse.Volume, error) {
		return []bourse.Volume{vol}, nil
	})
	shown, err1 := fabric.MachineShow.Call(t.Context(), f, w1, machine)
	list, err2 := fabric.MachineList.Call(t.Context(), f, w1, fabric.MachinesQuery{})
	done, err3 := fabric.MachineStop.Call(t.Context(), f, w1, fabric.MachineAction{Machine: machine})
	waited, err4 := fabric.MachineWait.Call(t.Context(), f, w1, fabric.WaitQuery{Machine: machine})
	volume, err5 := fabric.VolumeShow.Call(t.Context(), f, w1, vol.ID)
	volumes, err6 := fabric.VolumeList.Call(t.Context(), f, w1, fabric.VolumesQuery{})
	fabric.VolumeSnapshot.Handle(&mux, func(context.Context, bourse.VolumeID) (bourse.Snapshot, error) {
		return bourse.Snapshot{ID: bourse.NewSnapshotID(other)}, nil
	})
	snapshot, err7 := fabric.VolumeSnapshot.Call(t.Context(), f, w1, vol.ID)
	mux = http.ServeMux{}
	fabric.MachineList.Handle(&mux, func(context.Context, fabric.MachinesQuery) ([]bourse.Machine, error) {
		return []bourse.Machine{mine, {}}, nil // the second machine does not belong to a known worker
	})
	_, err8 := fabric.MachineList.Call(t.Context(), f, w1, fabric.MachinesQuery{})
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8} {
		if bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "belongs to another worker") {
			t.Errorf("answer %d: %v", i+1, err)
		}
	}
	if shown.ID != "" || list != nil || done.Machine.ID != "" || waited.Machine != nil || volume.ID != "" || volumes != nil || snapshot.ID != "" {
		t.Errorf("used: %+v %+v %+v %+v %+v %+v %+v", shown, list, done, waited, volume, volumes, snapshot)
	}
}
