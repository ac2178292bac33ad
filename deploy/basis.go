package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// seen returns what is known of each machine that counts.
func seen(s *survey) map[bourse.MachineID]Seen {
	out := make(map[bourse.MachineID]Seen, len(s.machines))
	for id, m := range s.machines {
		out[id] = Seen{
			Instance: m.InstanceID, Name: m.Name, Group: m.group, Region: m.Region, Worker: m.Worker,
			Down: m.down(), Cordoned: m.Cordoned, Lost: m.lost(),
		}
	}
	return out
}

// basis identifies what a plan is made of.
func basis(parts ...any) string {
	raw, err := json.Marshal(parts)
	if err != nil { // a number that JSON has no spelling for
		raw = []byte(err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
