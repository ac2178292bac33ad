package machinesapi

import "github.com/bourse-dev/bourse"

// MetadataPatch is the body of a change of several keys. Keys that it does not
// name stay; null or an empty text removes one.
type MetadataPatch struct {
	Metadata map[string]*string `json:"metadata"`
	Version  bourse.InstanceID  `json:"machine_version,omitempty"` // refuse when the machine has another by now
}

// MetadataValue is the body of one key's value.
type MetadataValue struct {
	Value string `json:"value"`
}
