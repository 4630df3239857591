package regular

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
)

// ReadTree returns the contents of all files below dir, each followed by a line break: at most limit bytes.
func ReadTree(dir string, limit int) ([]byte, error) {
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := ReadFile(path)
		all.Write(text)
		all.WriteByte('\n')
		if err == nil && all.Len() > limit {
			err = fmt.Errorf("the files in %s have more than %d bytes", dir, limit)
		}
		return err
	})
	return all.Bytes(), err
}
