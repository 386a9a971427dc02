{{- /* Labels that select the operator's pods; they never change, for a Deployment's selector cannot. */ -}}
{{- define "octavo.selectorLabels" -}}
app.kubernetes.io/name: octavo-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "octavo.labels" -}}
{{ include "octavo.selectorLabels" . }}
app.kubernetes.io/part-of: octavo
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "octavo.operatorSubject" -}}
- kind: ServiceAccount
  name: octavo-operator
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}
