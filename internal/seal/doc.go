// Package seal encrypts the values of secrets. A broker has a file of keys, one on each
// line: the first key encrypts; all keys decrypt.
//
// Each key in the file is used only to derive one key per app. A value is encrypted with
// its app's key, so an app's keys decrypt only that app's values. The app and the
// secret's name are authenticated with the value, so the value cannot be decrypted as
// that of another app or name.
package seal
