// Package seal encrypts the values of secrets. A broker has a file of keys, one per line. The first
// key encrypts, and all keys decrypt.
//
// Each key in the file is used only to derive one key per app. A value is encrypted with its app's
// key, so an app's keys decrypt only that app's values. The app and the secret's name are
// authenticated with the value, so a value cannot be passed off as a secret of another app or with
// another name.
package seal
