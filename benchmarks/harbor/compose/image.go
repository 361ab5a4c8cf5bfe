package compose

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/evalrun/evalrun/internal/yamldoc"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Machine returns the service's spec, including its image. files is the file system that the
// compose file was read from. Machine does not read it; it is read when the image is built.
func (s *Service) Machine(files fs.FS) (sandbox.Spec, error) {
	spec := s.Spec
	var err error
	spec.Image, err = s.image(files)
	return spec, err
}

func (s *Service) image(files fs.FS) (sandbox.Image, error) {
	if s.Build == nil {
		if s.Image == "" {
			return sandbox.Image{}, fmt.Errorf("service %s has neither an image nor a build", s.Name)
		}
		if len(s.Binds) == 0 {
			return sandbox.Image{Ref: s.Image, Platform: s.Spec.Platform}, nil
		}
		// Build a derived image that adds the files to the named image.
		var b strings.Builder
		from := map[string]string{}
		fmt.Fprintf(&b, "FROM %s\n", s.Image)
		for i, bind := range s.Binds {
			name := fmt.Sprintf("bind%d", i)
			from[name] = bind.From
			fmt.Fprintf(&b, "COPY [\"%s\", \"%s\"]\n", name, escape(bind.To))
		}
		return sandbox.Image{Dockerfile: b.String(), Context: &selected{files, from}, Platform: s.Spec.Platform}, nil
	}
	b := s.Build
	context, err := fs.Sub(files, b.Context)
	if err != nil {
		return sandbox.Image{}, err
	}
	img := sandbox.Image{Dockerfile: b.Dockerfile, Context: context, Args: b.Args, Target: b.Target, Network: b.Network,
		Platform: s.Spec.Platform}
	for _, bind := range s.Binds {
		rel, ok := strings.CutPrefix(bind.From, b.Context+"/")
		if b.Context == "." {
			rel, ok = bind.From, true
		}
		if !ok || b.Target != "" {
			return img, &Refused{&yamldoc.Error{Key: "services." + s.Name,
				Msg: fmt.Sprintf("%s lies outside of its build's context, or the build ends at a stage; COPY it in "+
					"the Dockerfile", bind.From)}}
		}
		img.Dockerfile = strings.TrimRight(img.Dockerfile, "\n") +
			fmt.Sprintf("\nCOPY [\"%s\", \"%s\"]\n", escape(rel), escape(bind.To))
	}
	return img, nil
}

// escape escapes a text for a quoted string in a Dockerfile's JSON form, where $ would start a
// variable.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `$`, `\\$`).Replace(s)
}

// selected is a file system that shows some files and directories of another one under different
// names.
type selected struct {
	fs.FS
	names map[string]string
}

func (s *selected) real(op, name string) (string, error) {
	first, rest, _ := strings.Cut(name, "/")
	from, ok := s.names[first]
	if !ok || !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return path.Join(from, rest), nil
}

func (s *selected) Open(name string) (fs.File, error) {
	if name == "." {
		return s.FS.Open(".") // ReadDir provides the listing
	}
	p, err := s.real("open", name)
	if err != nil {
		return nil, err
	}
	return s.FS.Open(p)
}

func (s *selected) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		p, err := s.real("readdir", name)
		if err != nil {
			return nil, err
		}
		return fs.ReadDir(s.FS, p)
	}
	var out []fs.DirEntry
	for i := range len(s.names) {
		n := fmt.Sprintf("bind%d", i)
		info, err := fs.Stat(s.FS, s.names[n])
		if err != nil {
			return nil, err
		}
		out = append(out, fs.FileInfoToDirEntry(renamed{info, n}))
	}
	return out, nil
}

func (s *selected) Stat(name string) (fs.FileInfo, error) {
	if name == "." {
		return fs.Stat(s.FS, ".")
	}
	p, err := s.real("stat", name)
	if err != nil {
		return nil, err
	}
	return fs.Stat(s.FS, p)
}

func (s *selected) Lstat(name string) (fs.FileInfo, error) {
	first, rest, _ := strings.Cut(name, "/")
	if rest == "" {
		return s.Stat(first)
	}
	p, err := s.real("lstat", name)
	if err != nil {
		return nil, err
	}
	return fs.Lstat(s.FS, p)
}

func (s *selected) ReadLink(name string) (string, error) {
	p, err := s.real("readlink", name)
	if err != nil {
		return "", err
	}
	return fs.ReadLink(s.FS, p)
}

type renamed struct {
	fs.FileInfo
	name string
}

func (r renamed) Name() string { return r.name }
