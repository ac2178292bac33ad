package deploy

import (
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

// seen returns what is known of each machine that counts.
func seen(s *survey) map[bourse.MachineID]Seen {
	if len(s.machines) == 0 {
		return nil
	}
	out := make(map[bourse.MachineID]Seen, len(s.machines))
	for id, m := range s.machines {
		out[id] = Seen{
			Instance: m.InstanceID, Name: m.Name, Worker: m.Worker, Cordoned: m.Cordoned, Lost: m.lost(), Marks: Marks(m.config.Metadata),
		}
	}
	return out
}

// Marks returns what plans have noted in a machine's metadata beside its group and what it replaces, as
// "key=value key=value" in a fixed order: they change without a new version of the machine.
func Marks(metadata map[string]string) string {
	var out []string
	for _, key := range []string{KeyPlatform, KeyRelease, KeyVersion, KeyCanary, KeyPaused} {
		if v := metadata[key]; v != "" {
			out = append(out, key+"="+v)
		}
	}
	return strings.Join(out, " ")
}

func named(id bourse.MachineID, name string) string {
	if name == "" {
		return string(id)
	}
	return fmt.Sprintf("%s (%s)", id, name)
}
