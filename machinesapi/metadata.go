package machinesapi

import "github.com/bourse-dev/bourse"

// MetadataPatch is the body of a change of several keys. Omitted keys do not change; null or an empty string removes
// a key.
type MetadataPatch struct {
	Metadata map[string]*string `json:"metadata"`
	Version  bourse.InstanceID  `json:"machine_version,omitempty"` // fail if the machine has another version
}

// MetadataValue is the body with one key's value.
type MetadataValue struct {
	Value string `json:"value"`
}
