package store

import (
	"cmp"
	"encoding/binary"

	"github.com/bourse-dev/bourse"
)

var machines = table[bourse.Machine]{bucketMachines, machineKeys, machineSums}

// appKey returns the string that represents an app in index keys. It is the app's id or, if the
// record does not contain an id, the app's name. An id cannot be mistaken for a name, because it
// contains capital letters.
func appKey(name bourse.AppName, id string) string { return cmp.Or(id, string(name)) }

// appKeysOf returns the strings that may represent an app in index keys.
func appKeysOf(app *bourse.App) []string {
	if app.ID == "" {
		return []string{string(app.Name)}
	}
	return []string{app.ID, string(app.Name)}
}

func portKey(port int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(port)) }

func machineKeys(m *bourse.Machine) []entry {
	id, app := []byte(m.ID), appKey(m.App, m.AppID)
	out := []entry{{bucketMachineApp, append(append([]byte(app), 0), id...), []byte{}, ""}}
	if m.State == bourse.StateDestroyed {
		return append(out, entry{bucketMachineDestroyed, timeKey(m.UpdatedAt, string(m.ID)), uint64Bytes(uint64(destroyedSize(m))), ""})
	}
	if m.Name != "" {
		out = append(out, entry{bucketMachineName, append(append([]byte(app), 0), m.Name...), id, "machine has this name"})
	}
	if c := m.Config.Task; c != nil {
		out = append(out, entry{bucketMachineTask, []byte(app + "\x00" + c.Name + "\x00" + string(m.ID)), []byte{}, ""})
	}
	if m.Boot.Port != 0 {
		out = append(out, entry{bucketMachinePort, portKey(m.Boot.Port), id, "machine has this port"})
	}
	return out
}

func machineSums(m *bourse.Machine) []sumPart {
	out := committed(m.Takes)
	if m.State == bourse.StateDestroyed {
		return append(out, sumPart{bucketMeta, keyDestroyedBytes, destroyedSize(m)})
	}
	return append(out, sumPart{bucketMachineLiving, appKey(m.App, m.AppID), 1})
}
